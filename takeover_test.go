package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// Memlock: a session is taken over; its former client is never told.
func TestKeeperTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		a := lockkeeper.New(e, lockkeeper.SessionID("s"))
		b := lockkeeper.New(e, lockkeeper.SessionID("s"))
		h := must(t)(a.Lock(background, "db"))
		other, err := b.TryLock(background, "db")
		time.Sleep(time.Hour)
		if err == nil && h.Err() == nil {
			t.Errorf("TWO HOLDERS for an hour: fences %d and %d, unconfirmed %v", h.Fence(), other.Fence(), other.Unconfirmed())
		}
		a.Close()
		b.Close()
	})
}

// A waiting claim that is asked for anew and refused waits for ever.
func TestRefusedResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() time.Duration { return time.Since(start) }
		g := lockkeeper.Guarantees{Name: "net", Features: lockkeeper.AllFeatures, Reach: lockkeeper.OnNetwork}
		k, k2 := keeper.New(g, clock), keeper.New(g, clock)
		w := &wire{Engine: k}
		c := lockkeeper.New(w, lockkeeper.BootClock(clock), lockkeeper.SessionID("a"))
		b := lockkeeper.New(&wire{Engine: k}, lockkeeper.BootClock(clock), lockkeeper.SessionID("b"))
		must(t)(b.Lock(background, "db"))
		ctx, cancel := context.WithCancel(background)
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(ctx, "db") })
		synctest.Wait()
		k.Close()
		w.set(func() {
			w.Engine = k2
			w.before = func(_ context.Context, call string, _ func()) error {
				if call == "claim db" {
					return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota}
				}
				return nil
			}
		})
		select {
		case o := <-done:
			t.Logf("%v", o.err)
		case <-time.After(10 * time.Minute):
			t.Error("refused, and its caller waits for ever")
			cancel()
			t.Logf("cancelled: %v", (<-done).err)
		}
		cancel()
		c.Close()
		b.Close()
		k2.Close()
	})
}

// Between the look at the other handles and the downgrade a handle comes that needs it exclusive.
func TestDowngradeTurn(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		h := must(t)(a.Lock(background, "db"))
		wa.set(func() {
			wa.before = func(_ context.Context, call string, _ func()) error {
				if call == "amend exclusive" {
					time.Sleep(time.Second) // the amendment below takes its time
				}
				return nil
			}
		})
		go h.Amend(background, lockkeeper.WithPriority(3))
		synctest.Wait()
		done := make(chan error)
		go func() { done <- h.Downgrade(background) }()
		synctest.Wait()
		nested, err := a.Lock(h.Context(), "db/sub")
		if err != nil {
			t.Logf("refused: %v (downgrade: %v)", err, <-done)
			return
		}
		t.Logf("downgrade: %v", <-done)
		other, err := b.Acquire(background, lockkeeper.Shared("db/sub"), lockkeeper.WithWait(0))
		if err == nil && nested.Err() == nil {
			t.Errorf("TWO HOLDERS: nested exclusive, and shared %d", other.Fence())
		}
	})
}
