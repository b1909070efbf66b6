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

// robbed lets b take in 5 s what a holds, and returns both holds, and how often a was
// renewed meanwhile; with lost none of that was answered.
func robbed(t *testing.T, a, b *lockkeeper.Client, wa *wire, lost bool, wait time.Duration) (victim,
	thief *lockkeeper.Hold, renewals int) {
	t.Helper()
	var renewed atomic.Int32 // counted by the client's goroutine
	victim = must(t)(a.Lock(background, "db"))
	time.Sleep(wait)
	synctest.Wait()
	wa.set(func() {
		wa.before = func(_ context.Context, call string, _ func()) error {
			if call == "end" {
				return errCut // nor does the engine hear that it gives up in time
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

// R12: a holder that heard until when it holds lets the engine know so, by one
// renewal more, and then what is taken at that end is confirmed.
func TestHeardEndIsConfirmed(t *testing.T) {
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		victim, thief, n := robbed(t, a, b, wa, false, time.Second)
		if victim.Err() == nil || thief.Unconfirmed() {
			t.Errorf("the victim: %v; the thief is unconfirmed: %t, want it confirmed", victim.Err(), thief.Unconfirmed())
		}
		if n != 2 {
			t.Errorf("%d renewals in 5s, want one that tells and one that says it was heard", n)
		}
	})
}

// R12: a holder that heard nothing of the end relies on what it heard before, and
// the thief is told so.
func TestUnheardEndIsUnconfirmed(t *testing.T) {
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		wa.set(func() { wa.deaf = true })
		// Its next renewal is due within the 5s.
		victim, thief, n := robbed(t, a, b, wa, true, lockkeeper.DefaultTTL/3-2*time.Second)
		if n == 0 {
			t.Error("no renewal: the test proves nothing")
		}
		if victim.Err() != nil || !thief.Unconfirmed() {
			t.Errorf("the victim, which heard nothing: %v; the thief is unconfirmed: %t, want it so", victim.Err(),
				thief.Unconfirmed())
		}
		time.Sleep(lockkeeper.DefaultTTL)
		if victim.Err() == nil {
			t.Error("the victim goes on for ever")
		}
	})
}
