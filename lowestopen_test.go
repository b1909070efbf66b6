package lockkeeper_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// recorder records the claims that pass through it, so that a test can deliver them again.
type recorder struct {
	lockkeeper.Engine
	mu    sync.Mutex
	keys  []lockkeeper.Key
	wants []lockkeeper.Want
}

func (r *recorder) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	kept := w
	kept.Targets = slices.Clone(w.Targets)
	r.mu.Lock()
	r.keys, r.wants = append(r.keys, k), append(r.wants, kept)
	r.mu.Unlock()
	return r.Engine.Claim(ctx, k, w)
}

// remembered returns how many claims the engine reports in a renewal under the key of the latest
// claim.
func (r *recorder) remembered(t *testing.T) int {
	t.Helper()
	lease, err := r.Renew(background, r.keys[len(r.keys)-1])
	if err != nil {
		t.Fatal(err)
	}
	return len(lease.Claims)
}

// R16: the engine may forget claims that the client has released, also those with ids above a claim
// that is held for long. If all requests arrive once more, late, they make no claim.
func TestLateCopiesOfAnsweredClaimsMakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &recorder{Engine: memlock.New()}
		c := lockkeeper.New(r, lockkeeper.SessionTTL(ttl),
			lockkeeper.BootClock(func() time.Duration { return time.Since(start) }))
		defer c.Close()
		must(t)(c.Lock(background, "for/long"))
		for range 100 {
			h := must(t)(c.Lock(background, "db"))
			if err := h.Release(background); err != nil {
				t.Fatal(err)
			}
			if _, err := c.TryLock(background, "for/long"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
				t.Fatalf("got %v, want ErrNotAcquired", err)
			}
		}
		if n := r.remembered(t); n > 3 {
			t.Errorf("%d claims are remembered, want the one that is held and the latest", n)
		}
		time.Sleep(2 * ttl)
		if n := r.remembered(t); n > 1 {
			t.Errorf("%d claims are remembered after 2 TTLs, want the one that is held", n)
		}
		must(t)(c.Lock(background, "other")) // states that the last of them is answered
		wants := slices.Clone(r.wants)
		for i, w := range wants {
			s, err := r.Engine.Claim(background, r.keys[i], w)
			if held := w.Targets[0].Path == "for/long" && i == 0 ||
				w.Targets[0].Path == "other"; held && err == nil && s.State == lockkeeper.Held {
				continue
			}
			if !errors.Is(err, lockkeeper.ErrNotHeld) {
				t.Fatalf("claim %d of %s arrives late: %v, %v; want ErrNotHeld", i, w.Targets[0].Path, s.State, err)
			}
		}
	})
}

// A client that was never attached states no lowest open id. A claim that it can't send ends at
// once.
func TestRefusedFirstAttachEndsTheClaim(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		c, w := open("a") // its first id is random
		refused := &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota}
		w.set(func() {
			w.before = func(context.Context, string, func()) error { return refused }
		})
		_, err := c.Lock(background, "db")
		wantErr(t, err, lockkeeper.ErrDenied)
	})
}

// ignoresLowestOpen is an engine that ignores Key.LowestOpen.
type ignoresLowestOpen struct{ lockkeeper.Engine }

func (h ignoresLowestOpen) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	k.LowestOpen = 0
	return h.Engine.Claim(ctx, k, w)
}

// A claim that another client of the session made, with an id far from all others, does not lower
// the lowest open id while this client ends it.
func TestPredecessorsClaimDoesNotLowerLowestOpen(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		c, w := open("a") // its first id is random
		r := &recorder{Engine: ignoresLowestOpen{k}}
		w.set(func() { w.Engine = r })
		must(t)(c.Lock(background, "x"))
		w.set(func() {
			w.before = func(_ context.Context, call string, _ func()) error {
				if call == "end" {
					return errCut
				}
				return nil
			}
		})
		key := r.keys[0]
		old := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "old", Mode: lockkeeper.ModeExclusive}}}
		if s, err := r.Engine.Claim(background, key, old); err != nil || s.State != lockkeeper.Held {
			t.Fatalf("%v, %v", s.State, err)
		}
		time.Sleep(ttl) // a renewal reports it
		other := lockkeeper.Session{ID: "a", TTL: ttl, Epoch: key.Epoch, Named: []uint64{1, r.wants[0].ID}}
		if _, err := k.Attach(background, other, nil); err != nil {
			t.Fatal(err)
		}
		must(t)(c.Lock(background, "y"))
		if k, id := r.keys[len(r.keys)-1], r.wants[len(r.wants)-1].ID; k.LowestOpen != id {
			t.Errorf("the key states that all claims below %d are answered; the lowest open one is %d", k.LowestOpen, id)
		}
	})
}

// Calls that are sent after a request in flight do not state that it is answered.
func TestRequestInFlightStaysOpen(t *testing.T) {
	for name, out := range map[string]func(c *lockkeeper.Client) error{
		"a claim": func(c *lockkeeper.Client) error { _, err := c.Lock(background, "slow"); return err },
		"a freeze": func(c *lockkeeper.Client) error {
			return c.Freeze(background, "slow", time.Minute, lockkeeper.Label{})
		},
	} {
		t.Run(name, func(t *testing.T) { overtaken(t, out) })
	}
}

// overtaken delays the request out, for the path slow, until other claims were made and released.
func overtaken(t *testing.T, out func(c *lockkeeper.Client) error) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		c, w := open("a")
		must(t)(c.Lock(background, "x"))
		gate := make(chan struct{})
		w.set(func() {
			w.before = func(_ context.Context, call string, _ func()) error {
				if call == "claim slow" {
					<-gate
				}
				return nil
			}
		})
		done := make(chan error, 1)
		go func() { done <- out(c) }()
		synctest.Wait()
		for range 3 {
			h := must(t)(c.Lock(background, "y"))
			if err := h.Release(background); err != nil {
				t.Fatal(err)
			}
		}
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
