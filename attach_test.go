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

// attaches sets hooks of a wire with which the test decides whether the n-th Attach arrives. It
// returns the number of Attach calls.
func attaches(w *wire, before func(ctx context.Context, n int, deliver func()) error, after func(n int) error) *int {
	n := new(int)
	w.set(func() {
		w.before = func(ctx context.Context, call string, deliver func()) error {
			if call != "attach" {
				return nil
			}
			if *n++; before != nil {
				return before(ctx, *n, deliver)
			}
			return nil
		}
		w.after = func(_ context.Context, call string) error {
			if call == "attach" && after != nil {
				return after(*n)
			}
			return nil
		}
	})
	return n
}

// R19: an Attach that arrives after its successor ends no claim of the successor.
func TestAttachAfterItsSuccessor(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		late := make(chan func(), 8)
		n := attaches(wa, func(ctx context.Context, n int, deliver func()) error {
			if n > 1 {
				return nil
			}
			late <- deliver
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		must(t)(a.Lock(background, "other")) // both name this one
		h := must(t)(a.Lock(background, "db"))
		wa.set(func() { wa.loseHints = true })
		(<-late)()
		synctest.Wait()
		if _, err := b.TryLock(background, "db"); err == nil {
			t.Error("TWO HOLDERS: the lock was granted again after an Attach that came late")
		}
		time.Sleep(3 * lockkeeper.DefaultTTL)
		if err := h.Err(); err != nil {
			t.Errorf("the hold is gone: %v", err)
		}
		if *n != 2 {
			t.Errorf("attached %d times, want one without effect and one more", *n)
		}
	})
}

// R19: if the answer to an Attach is lost, the repetition takes the session over.
func TestAttachWithoutAnswer(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		n := attaches(wa, nil, func(n int) error {
			if n == 1 {
				return errCut
			}
			return nil
		})
		start := time.Now()
		h := must(t)(a.Lock(background, "db"))
		if took := time.Since(start); *n != 3 || took > time.Second {
			t.Errorf("attached %d times within %s, want one without an answer, one refused, and one that names the epoch", *n,
				took)
		}
		if err := h.Release(background); err != nil {
			t.Error(err)
		}
	})
}

// R19: a restarted program takes over the session of its predecessor, which loses its holds.
func TestTakeoverOnPurpose(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		first, _ := open("s")
		second, ws := open("s")
		n := attaches(ws, nil, nil)
		before := must(t)(first.Lock(background, "db"))
		after := must(t)(second.TryLock(background, "db"))
		wantErr(t, before.Err(), lockkeeper.ErrLost, lockkeeper.Superseded)
		if after.Fence() <= before.Fence() || *n != 2 {
			t.Errorf("fences %d, %d; attached %d times, want one refused and one that names the epoch", before.Fence(),
				after.Fence(), *n)
		}
	})
}

// The engine in memory: the former client of a session that was taken over loses its holds.
func TestTakenOverSessionLosesItsHolds(t *testing.T) {
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
