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

// Each test here is a schedule that once broke the client.

// An answer that arrives after the deadline of the session grants nothing.
func TestGrantAfterDeadline(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		must(t)(a.Lock(background, "x")) // attached at 0
		// renewals get lost; the claim's answer takes from 28 to 30 s, then nothing gets through.
		wa.set(func() {
			wa.before = func(ctx context.Context, call string, _ func()) error {
				if call == "renew" || call == "attach" || call == "end" {
					return errCut
				}
				return nil
			}
			wa.loseHints = true
			wa.after = func(ctx context.Context, call string) error {
				time.Sleep(2 * time.Second)
				return nil
			}
		})
		time.Sleep(28 * time.Second)
		h, err := a.Lock(background, "db")
		t.Logf("at 30s: %v", err)
		if err != nil {
			return
		}
		t.Logf("at 30s: %v %v", h.Err(), h.Remaining())
		time.Sleep(time.Minute)
		other := must(t)(b.TryLock(background, "db"))
		t.Logf("later: %v, %v", h.Err(), other.Err())
		if h.Err() == nil && other.Err() == nil {
			t.Errorf("two holders a minute after the session of the first ended: fences %d and %d", h.Fence(), other.Fence())
		}
	})
}

// A duplicate of a claim arrives after the engine has forgotten the claim.
func TestLateDuplicateOfClaim(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		late := make(chan func(), 8)
		n := 0
		wa.before = func(ctx context.Context, call string, deliver func()) error {
			if call == "claim db" {
				if n++; n == 1 {
					late <- deliver
					return errCut
				}
			}
			return nil
		}
		h := must(t)(a.Lock(background, "db"))
		if err := h.Release(background); err != nil {
			t.Fatal(err)
		}
		time.Sleep(31 * time.Second)
		(<-late)()
		time.Sleep(10 * time.Minute)
		if _, err := b.TryLock(background, "db"); err != nil {
			t.Errorf("ten minutes later: %v", err)
		}
	})
}

// A claim re-enters a hold while its downgrade is in flight: it gets no exclusive handle.
func TestDowngradeAndReenter(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		h := must(t)(a.Lock(background, "db"))
		wa.set(func() {
			wa.after = func(ctx context.Context, call string) error {
				if call == "amend shared" {
					time.Sleep(3 * time.Second)
				}
				return nil
			}
			wa.loseHints = true
		})
		done := make(chan error)
		go func() { done <- h.Downgrade(background) }()
		synctest.Wait()
		nested, err := a.Lock(h.Context(), "db") // wants it exclusive
		if err != nil {
			t.Logf("refused: %v (downgrade: %v)", err, <-done)
			return
		}
		t.Logf("downgrade: %v", <-done)
		other, err := b.Acquire(background, lockkeeper.Shared("db"), lockkeeper.WithWait(0))
		if err == nil && nested.Err() == nil {
			t.Errorf("two holders: exclusive (nested) and shared %d; nested says %v", other.Fence(), nested.Grants())
		}
	})
}

// Two handles upgrade a hold, and one gives up at the moment of the grant: the other keeps its
// upgrade.
func TestUndoUnderAnotherHandle(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, _ := open("a")
		b, _ := open("b")
		h1 := must(t)(a.Acquire(background, lockkeeper.Shared("db")))
		h2 := must(t)(a.Acquire(h1.Context(), lockkeeper.Shared("db")))
		g := must(t)(b.Acquire(background, lockkeeper.Shared("db")))
		ctx := &ended{Context: background}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- h1.Upgrade(background) }()
		synctest.Wait()
		go func() { second <- h2.Upgrade(ctx) }()
		synctest.Wait()
		// the cancel and the grant in one moment: a check after the grant finds the ctx ended
		ctx.over.Store(true)
		g.Release(background)
		if err := <-first; err != nil {
			t.Logf("first: %v", err)
			return
		}
		t.Logf("first upgraded, second: %v", <-second)
		time.Sleep(time.Second)
		other, err := b.Acquire(background, lockkeeper.Shared("db"), lockkeeper.WithWait(0))
		if err == nil && h1.Err() == nil {
			t.Errorf("two holders: h1 was upgraded, h1 says %v %v; b shares it, fence %d", h1.Err(), h1.Grants(), other.Fence())
		}
	})
}

// ended is a context that ends just before it is looked at: its Done comes too late.
type ended struct {
	context.Context
	over atomic.Bool
}

func (e *ended) Done() <-chan struct{} { return make(chan struct{}) }
func (e *ended) Err() error {
	if e.over.Load() {
		return context.Canceled
	}
	return nil
}

// Cancelling a granted Pending keeps the claim for a handle that re-entered it.
func TestCancelUnderReenteredHandle(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, _ := open("a")
		b, _ := open("b")
		root := must(t)(a.Lock(background, "root"))
		p, err := a.Enqueue(root.Context(), lockkeeper.Exclusive("db"))
		if err != nil {
			t.Fatal(err)
		}
		h := must(t)(a.Lock(background, "db", lockkeeper.WithInside(p.Ref())))
		t.Logf("cancel: %v", p.Cancel())
		other, err := b.TryLock(background, "db")
		if err == nil && h.Err() == nil {
			t.Errorf("two holders: %v and %v", h.Ref(), other.Ref())
		}
		t.Logf("release of the handle: %v", h.Release(background))
	})
}

// An upgrade that was undone arrives later: it is not granted.
func TestUpgradeThatArrivesAfterItsUndoGrantsNothing(t *testing.T) {
	netted(t, func(t *testing.T, k *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		a, wa := open("a")
		b, _ := open("b")
		h := must(t)(a.Acquire(background, lockkeeper.Shared("db"), lockkeeper.WithWait(3*time.Second)))
		late := make(chan func(), 8)
		wa.set(func() {
			wa.before = func(ctx context.Context, call string, deliver func()) error {
				if call == "amend exclusive" {
					late <- deliver
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		t.Logf("upgrade: %v", h.Upgrade(ctx))
		time.Sleep(5 * time.Second)
		(<-late)()
		time.Sleep(time.Minute)
		if _, err := b.Acquire(background, lockkeeper.Shared("db"), lockkeeper.WithWait(0)); err != nil {
			t.Errorf("a minute after the upgrade was given up: %v; the hold says %v", err, h.Grants())
		}
	})
}

// A nested claim needs the hold exclusive while a downgrade waits for its turn: either the claim is
// refused, or the hold stays exclusive.
func TestNestedClaimDuringDowngrade(t *testing.T) {
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
