package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// attaches hooks a wire so that what happens to the n-th Attach is up to the test,
// and counts them.
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

// R19: an Attach that arrives after its successor ends nothing of what was locked
// under that.
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
		wa.set(func() { wa.deaf = true })
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
			t.Errorf("attached %d times, want once in vain and once more", *n)
		}
	})
}

// R19: what an Attach did of which the answer was lost, its repetition takes over.
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
			t.Errorf("attached %d times within %s, want one without an answer, one refused, one that is told the epoch", *n,
				took)
		}
		if err := h.Release(background); err != nil {
			t.Error(err)
		}
	})
}

// R19: a restarted program takes over what its predecessor had under the same
// session id, and its predecessor loses it.
func TestTakeoverOnPurpose(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		first, _ := open("s")
		second, ws := open("s")
		n := attaches(ws, nil, nil)
		before := must(t)(first.Lock(background, "db"))
		after := must(t)(second.TryLock(background, "db"))
		wantErr(t, before.Err(), lockkeeper.ErrLost, lockkeeper.Superseded)
		if after.Fence() <= before.Fence() || *n != 2 {
			t.Errorf("fences %d, %d; attached %d times, want one refused and one that is told the epoch", before.Fence(),
				after.Fence(), *n)
		}
	})
}
