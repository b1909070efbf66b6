package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/memory"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// inMemory opens engines on n servers in memory, in a bubble of fake time.
func inMemory(n int, faults memory.Faults) enginetest.Harness {
	return enginetest.Harness{
		Many:   true,
		Bubble: true,
		Skip:   skipped,
		Fresh: func(t *testing.T) enginetest.Open {
			set := memory.New(n, 1)
			set.SetFaults(faults)
			return func() lockkeeper.Engine { return openInMemory(t, set) }
		},
	}
}

// withoutOrder returns h with engines that claim no order. Stress cuts links for longer than a TTL, and
// on real servers a busy machine also stops processes while they resume. A waiter that resumes then may
// keep its ticket where the servers had let others pass meanwhile. The checks of the suite, and
// TestStressInMemory, judge the order.
func withoutOrder(h enginetest.Harness) enginetest.Harness {
	fresh := h.Fresh
	h.Fresh = func(t *testing.T) enginetest.Open {
		open := fresh(t)
		return func() lockkeeper.Engine { return unordered{open().(*Engine)} }
	}
	return h
}

// skipped are the checks of the suite that redlock does not pass, with the reasons.
var skipped = map[string]string{
	"Contention/tries": "several tries at once may all be refused by a split vote",
}

// openInMemory opens one engine on the servers of set, and waits until it can be used.
func openInMemory(t *testing.T, set *memory.Set) *Engine {
	start := time.Now()
	e := newEngine(func() time.Duration { return time.Second + time.Since(start) }, set.Links())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.waitUsable(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformanceInMemory(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) { enginetest.Run(t, inMemory(n, memory.Faults{})) })
	}
}

func TestStressInMemory(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			enginetest.Stress(t, inMemory(n, memory.Faults{}))
		})
	}
}

// onRedis opens engines on n servers of Redis, which live as long as t. Every check has keys of its
// own. Sessions live for a second only, so not too many checks may run at once.
func onRedis(t *testing.T, n int) enginetest.Harness {
	var servers []*testdb.Server
	for range n {
		servers = append(servers, testdb.Redis(t))
	}
	url := urlOf(servers...)
	room := make(chan struct{}, 9-n)
	var number atomic.Uint64
	return enginetest.Harness{
		Many: true,
		Skip: skipped,
		Fresh: func(t *testing.T) enginetest.Open {
			room <- struct{}{}
			t.Cleanup(func() { <-room })
			own := fmt.Sprintf("%s?prefix=t%d:", url, number.Add(1))
			return func() lockkeeper.Engine { return openPatiently(t, own) }
		},
	}
}

// openPatiently opens the engine as a program does that waits for its servers: on a busy machine one of
// them may not answer within firstUseBound.
func openPatiently(t *testing.T, url string) *Engine {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		e, err := Open(context.Background(), url)
		if err == nil {
			return e
		}
		if !errors.Is(err, lockkeeper.ErrUnavailable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestConformanceOnRedis(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			if n == 5 {
				testmode.NeedLong(t, "three servers show the same in half the time")
			}
			enginetest.Run(t, onRedis(t, n))
		})
	}
}

func TestStressOnRedis(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			if n == 5 {
				testmode.NeedLong(t, "three servers show the same in half the time")
			}
			enginetest.Stress(t, withoutOrder(onRedis(t, n)))
		})
	}
}
