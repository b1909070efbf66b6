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

// recorder keeps the claims that pass, to deliver them again.
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

// remembered is how many claims the engine tells of in a renewal under the key of
// the latest claim.
func (r *recorder) remembered(t *testing.T) int {
	t.Helper()
	lease, err := r.Renew(background, r.keys[len(r.keys)-1])
	if err != nil {
		t.Fatal(err)
	}
	return len(lease.Claims)
}

// R16: what a client has released the engine need not remember, also below a claim
// that is held for long; and when it all arrives once more, late, nothing is made.
func TestAnsweredClaimsAreForgottenAndNeverMade(t *testing.T) {
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
		must(t)(c.Lock(background, "other")) // by now the last of them is stated too
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

// A claim that waits at an engine that loses its memory is asked anew, whatever
// was answered after it.
func TestWhatIsAskedAnewIsNotStatedAsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() time.Duration { return time.Since(start) }
		g := lockkeeper.Guarantees{Name: "net", Features: lockkeeper.AllFeatures, Reach: lockkeeper.OnNetwork}
		k, k2 := keeper.New(g, clock), keeper.New(g, clock)
		w := &wire{Engine: k}
		c := lockkeeper.New(w, lockkeeper.BootClock(clock), lockkeeper.SessionID("a"))
		b := lockkeeper.New(&wire{Engine: k}, lockkeeper.BootClock(clock), lockkeeper.SessionID("b"))
		must(t)(b.Lock(background, "db"))
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "db") })
		synctest.Wait()
		for range 3 {
			h := must(t)(c.Lock(background, "x"))
			if err := h.Release(background); err != nil {
				t.Fatal(err)
			}
		}
		k.Close()
		w.set(func() { w.Engine = k2 })
		o := <-done
		must(t)(o.hold, o.err)
		c.Close()
		b.Close()
		k2.Close()
	})
}

// A client that was never attached has answered nothing, and ends what it can't
// send at once, whatever id it would have had.
func TestNothingIsAnsweredBeforeTheFirstAttach(t *testing.T) {
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

// heedless is an engine that does not look at what is answered.
type heedless struct{ lockkeeper.Engine }

func (h heedless) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	k.LowestOpen = 0
	return h.Engine.Claim(ctx, k, w)
}

// A claim that nobody here has made, with an id far from all others, as a
// predecessor's has, holds back nothing while it waits for its end.
func TestIDsOfAPredecessor(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		c, w := open("a") // its first id is random
		r := &recorder{Engine: heedless{k}}
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
		time.Sleep(ttl) // a renewal has told of it
		other := lockkeeper.Session{ID: "a", TTL: ttl, Epoch: key.Epoch, Named: []uint64{1, r.wants[0].ID}}
		if _, err := k.Attach(background, other, nil); err != nil {
			t.Fatal(err)
		}
		must(t)(c.Lock(background, "y"))
		if k, id := r.keys[len(r.keys)-1], r.wants[len(r.wants)-1].ID; k.LowestOpen != id {
			t.Errorf("below %d all is answered, and claim %d is the only one that is not", k.LowestOpen, id)
		}
	})
}

// What is out is not stated as answered by others that are sent after it.
func TestWhatIsOutIsNotAnswered(t *testing.T) {
	for name, out := range map[string]func(c *lockkeeper.Client) error{
		"a claim": func(c *lockkeeper.Client) error { _, err := c.Lock(background, "slow"); return err },
		"a freeze": func(c *lockkeeper.Client) error {
			return c.Freeze(background, "slow", time.Minute, lockkeeper.Label{})
		},
	} {
		t.Run(name, func(t *testing.T) { overtaken(t, out) })
	}
}

// overtaken sends out, which is about the path slow, and more before it arrives.
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
