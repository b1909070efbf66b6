package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/memory"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// lossy are the faults of bad networks: connections that break with the outcome unknown, messages
// that are lost or late, requests that arrive a second time much later.
var lossy = memory.Faults{Lose: 2, LoseHints: 20, Double: 5, Delay: 4 * time.Millisecond}

func TestStressWithBadNetworks(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) { enginetest.Stress(t, withFaults(t, n, lossy, false)) })
	}
}

func TestStressWhileServersAreLost(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			enginetest.Stress(t, withFaults(t, n, memory.Faults{}, true))
		})
	}
}

// unordered is an engine that claims no order: where faults keep requests from some servers, the order
// in which the others got them counts.
type unordered struct{ *Engine }

func (u unordered) Guarantees() lockkeeper.Guarantees {
	g := u.Engine.Guarantees()
	g.Features &^= lockkeeper.FeatureFIFO | lockkeeper.FeaturePriority
	return g
}

// withFaults is inMemory with faults that end when the suite asks for calm; with losses, one server
// after the other is stopped, or loses its data.
func withFaults(t *testing.T, n int, faults memory.Faults, losses bool) enginetest.Harness {
	seed := testmode.Seed(t)
	h := inMemory(n, faults)
	var calm atomic.Pointer[func()]
	h.Fresh = func(t *testing.T) enginetest.Open {
		set := memory.New(n, seed)
		set.SetFaults(faults)
		stop := make(chan struct{})
		var running sync.WaitGroup
		if losses {
			running.Go(func() { loseServers(set, n, rand.New(rand.NewPCG(seed, 77)), stop) })
		}
		end := sync.OnceFunc(func() {
			close(stop)
			running.Wait()
			set.SetFaults(memory.Faults{})
		})
		calm.Store(&end)
		t.Cleanup(end)
		return func() lockkeeper.Engine { return unordered{openInMemory(t, set)} }
	}
	h.Calm = func() { (*calm.Load())() }
	return h
}

// loseServers makes one server after the other unreachable for a while, or empty. It ends with all
// servers up.
func loseServers(set *memory.Set, n int, random *rand.Rand, stop <-chan struct{}) {
	pause := func(most time.Duration) bool {
		select {
		case <-time.After(time.Duration(random.Int64N(int64(most)))):
			return true
		case <-stop:
			return false
		}
	}
	for pause(2 * time.Second) {
		i := random.IntN(n)
		if random.IntN(3) == 0 {
			<-set.Empty(i)
			continue
		}
		set.Server(i).Stop()
		pause(3 * time.Second)
		set.Server(i).Start()
	}
}

// inBubble runs do in a bubble with three servers and a client on them.
func inBubble(t *testing.T, do func(t *testing.T, set *memory.Set, c *lockkeeper.Client)) {
	synctest.Test(t, func(t *testing.T) {
		set := memory.New(3, 1)
		set.SpreadClocks()
		c := clientOn(t, set)
		do(t, set, c)
	})
}

func clientOn(t *testing.T, set *memory.Set) *lockkeeper.Client {
	start := time.Now()
	c := lockkeeper.New(openInMemory(t, set), lockkeeper.SessionTTL(2*time.Second),
		lockkeeper.BootClock(func() time.Duration { return time.Since(start) }))
	t.Cleanup(func() { c.Close() })
	return c
}

// A hold outlives the loss of a server, because the holder restores its record at a server that lost
// it.
func TestHoldOutlivesLossOfServers(t *testing.T) {
	inBubble(t, func(t *testing.T, set *memory.Set, c *lockkeeper.Client) {
		ctx := t.Context()
		hold, err := c.Lock(ctx, "db")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			<-set.Empty(i)
			time.Sleep(3 * time.Second) // renewals restore the record
			if err := hold.Err(); err != nil {
				t.Fatalf("after the loss of server %d: %v", i, err)
			}
			if _, err := clientOn(t, set).TryLock(ctx, "db"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
				t.Fatalf("after the loss of server %d another client gets: %v", i, err)
			}
		}
		fence := hold.Fence()
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
		next, err := clientOn(t, set).Lock(ctx, "db")
		if err != nil || next.Fence() <= fence {
			t.Errorf("the next hold has fence %d after %d, %v", next.Fence(), fence, err)
		}
	})
}

// Taken and unreachable are never confused, and a hold ends when a majority is gone for longer than
// its TTL.
func TestLossOfAMajority(t *testing.T) {
	inBubble(t, func(t *testing.T, set *memory.Set, c *lockkeeper.Client) {
		other := clientOn(t, set)
		hold, err := c.Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		set.Server(0).Stop()
		set.Server(2).Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = other.TryLock(ctx, "db")
		if !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Errorf("another client gets: %v", err)
		}
		if !strings.Contains(err.Error(), "memory 0") {
			t.Errorf("the error does not name the server: %v", err)
		}
		<-hold.Done()
		if err := hold.Err(); !errors.Is(err, lockkeeper.Unreachable) {
			t.Errorf("the hold ended with: %v", err)
		}
		set.Server(0).Start()
		if _, err := c.Lock(t.Context(), "db"); err != nil {
			t.Errorf("with two servers again: %v", err)
		}
	})
}
