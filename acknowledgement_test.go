package lockkeeper_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// stealFrom lets b steal db from a after 5 s. It returns both holds and how often a was renewed
// meanwhile. If lost is set, a receives no answer to these renewals. The engine never learns that
// a stops using its hold.
func stealFrom(t *testing.T, a, b *lockkeeper.Client, wa *wire, lost bool, wait time.Duration) (victim,
	thief *lockkeeper.Hold, renewals int) {
	t.Helper()
	var renewed atomic.Int32 // counted by the client's goroutine
	victim = must(t)(a.Lock(background, "db"))
	time.Sleep(wait)
	synctest.Wait()
	wa.set(func() {
		wa.before = func(_ context.Context, call string, _ func()) error {
			if call == "end" {
				return errCut
			}
			return nil
		}
		wa.after = func(_ context.Context, call string) error {
			if call != "renew" {
				return nil
			}
			if renewed.Add(1); lost {
				return errCut
			}
			return nil
		}
	})
	start := time.Now()
	thief = must(t)(b.Lock(background, "db", lockkeeper.WithPriority(1), lockkeeper.WithStealAfter(5*time.Second)))
	if waited := time.Since(start); waited != 5*time.Second {
		t.Errorf("taken after %s, want 5s", waited)
	}
	return victim, thief, int(renewed.Load())
}

// R12: a holder that receives the end of its hold acknowledges it by one more renewal. A grant at
// that end is confirmed.
func TestAcknowledgedEndIsConfirmed(t *testing.T) {
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		victim, thief, n := stealFrom(t, a, b, wa, false, time.Second)
		if victim.Err() == nil || thief.Unconfirmed() {
			t.Errorf("the victim: %v; the thief is unconfirmed: %t, want it confirmed", victim.Err(), thief.Unconfirmed())
		}
		if n != 2 {
			t.Errorf("%d renewals in 5s, want one that states the end and one that acknowledges it", n)
		}
	})
}

// R12: a holder that receives nothing relies on its earlier lease, so the grant of the thief is
// unconfirmed.
func TestUnacknowledgedEndIsUnconfirmed(t *testing.T) {
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		wa.set(func() { wa.loseHints = true })
		// Its next renewal is due within the 5s.
		victim, thief, n := stealFrom(t, a, b, wa, true, lockkeeper.DefaultTTL/3-2*time.Second)
		if n == 0 {
			t.Error("no renewal: the test proves nothing")
		}
		if victim.Err() != nil || !thief.Unconfirmed() {
			t.Errorf("the victim, which received nothing: %v; the thief is unconfirmed: %t, want it unconfirmed", victim.Err(),
				thief.Unconfirmed())
		}
		time.Sleep(lockkeeper.DefaultTTL)
		if victim.Err() == nil {
			t.Error("the victim holds on without limit")
		}
	})
}
