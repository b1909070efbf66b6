package grab_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// keeps starts a Keepalive for the reservation of n.
func (w *world) keeps(as string, paths ...string) *grab.Keepalive {
	w.Helper()
	k, err := w.process().Keep(w.ctx(), w.name(as, paths...), grab.Terms{}, w.clock)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(k.Stop)
	return k
}

// TestKeep: a Keepalive renews a waiting claim and then its hold, without calls of the program.
// After Stop the hold lives for one more TTL.
func TestKeep(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		w.wait(1, "me", "db")
		k := w.keeps("me", "db")
		holder := w.keeps("holder", "db")
		w.pass(10 * grab.DefaultTTL)
		if a := k.Answer(); a.State != lockkeeper.Waiting || a.Position != 1 {
			w.Errorf("kept: %s in place %d, want its place", a.State, a.Position)
		}
		holder.Stop()
		w.pass(10 * grab.DefaultTTL)
		if a := k.Answer(); a.State != lockkeeper.Held {
			w.Errorf("kept: %s, want held", a.State)
		}
		w.wait(1, "next", "db")
		k.Stop()
		left := k.Remaining()
		if k.Err() != nil || left < grab.DefaultTTL*6/10 || left > grab.DefaultTTL {
			w.Errorf("when it stops %s are left (%v), want most of a TTL", left, k.Err())
		}
		select {
		case <-k.Done():
			w.Error("stopping counts as a loss")
		default:
		}
		w.renews("next", "db")
		w.pass(left)
		w.isLost(k.Err(), lockkeeper.Expired) // by its own clock it may be over
		w.renews("next", "db")
		w.pass(grab.DefaultTTL - left)
		w.ok("next", "db")
	})
}

// TestKeepNothing: Keep without a claim returns ErrLost.
func TestKeepNothing(t *testing.T) {
	onEachEngine(t, func(w *world) {
		_, err := w.process().Keep(w.ctx(), w.name("me", "db"), grab.Terms{}, w.clock)
		w.isLost(err, lockkeeper.NoReason)
	})
}

// TestKeepEnds: a Keepalive reports the reason of an end at once.
func TestKeepEnds(t *testing.T) {
	onEachEngine(t, func(w *world) {
		end := func(why lockkeeper.Reason, do func()) {
			w.Helper()
			w.ok("me", "db")
			k := w.keeps("me", "db")
			w.pass(100 * time.Millisecond) // it may follow by now, or not
			began := time.Now()
			do()
			select {
			case <-k.Done():
			case <-time.After(grab.DefaultTTL):
				w.Fatalf("%s: not told within a TTL", why)
			}
			if took := time.Since(began); took > 10*time.Second {
				w.Errorf("%s: told after %s", why, took)
			}
			w.isLost(k.Err(), why)
			w.released(0, "me", "db")
		}
		end(lockkeeper.Released, func() { w.released(1, "me", "db") })
		end(lockkeeper.Revoked, func() { w.revoke("me", "db") })
	})
}

// deaf is an engine whose List reports no changes.
type deaf struct{ lockkeeper.Engine }

func (d deaf) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if !q.Follow {
		return d.Engine.List(ctx, q)
	}
	return func(func(lockkeeper.Status, error) bool) { <-ctx.Done() }
}

// TestKeepAskedByOperator: an operator asks for a hold and then ends it. The Keepalive reports that
// reason, also if it ends by its own clock.
func TestKeepAskedByOperator(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("me", "db")
		k := w.keeps("me", "db")
		w.asks("me", "db")
		<-k.Done()
		for _, err := range []error{k.Err(), k.Why(w.ctx())} {
			if w.isLost(err, lockkeeper.Revoked); err.Error() != "keep db: lock lost (revoked): stuck (by ops)" {
				w.Errorf("got %q", err)
			}
		}
		w.lostSince(k, lockkeeper.Revoked)
	})
}

// lostSince checks that the reservation of k ends at the engine too, a little later.
func (w *world) lostSince(k *grab.Keepalive, why lockkeeper.Reason) {
	w.Helper()
	w.pass(time.Second)
	w.lost(why, "me", "db")
	w.isLost(k.Why(w.ctx()), why)
}

// TestKeepAsksWhy: a Keepalive whose process was suspended asks the engine for the reason of the
// end. If the suspension itself was the reason, the error says so. Every error has the operation
// keep.
func TestKeepAsksWhy(t *testing.T) {
	for _, revoked := range []bool{true, false} {
		inMemory(t, func(w *world) {
			var slept atomic.Int64
			clock := func() time.Duration { return w.clock() + time.Duration(slept.Load()) }
			p := grab.New(deaf{w.engines[0]})
			if _, err := p.Keep(w.ctx(), w.name("me", "db"), grab.Terms{}, clock); err == nil ||
				!strings.HasPrefix(err.Error(), "keep db: ") {
				w.Errorf("nothing to keep: %v", err)
			}
			w.ok("me", "db")
			k, err := p.Keep(w.ctx(), w.name("me", "db"), grab.Terms{}, clock)
			if err != nil {
				w.Fatal(err)
			}
			defer k.Stop()
			why := lockkeeper.Suspended
			if revoked {
				w.revoke("me", "db")
				why = lockkeeper.Revoked
			}
			slept.Store(int64(time.Hour))
			<-k.Done()
			w.isLost(k.Err(), lockkeeper.Suspended)
			w.isLost(k.Why(w.ctx()), why)
			if text := k.Why(w.ctx()).Error(); !strings.HasPrefix(text, "keep db: ") {
				w.Errorf("got %q", text)
			}
		})
	}
}

// TestKeepIgnoresLaterHold: a later hold of the same name is not the hold that a Keepalive keeps.
func TestKeepIgnoresLaterHold(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("me", "db")
		k := w.keeps("me", "db")
		w.released(1, "me", "db")
		w.ok("me", "db")
		<-k.Done()
		if err := k.Err(); !errors.Is(err, lockkeeper.ErrLost) {
			w.Errorf("got %v, want ErrLost", err)
		}
		if n, err := k.Release(w.ctx()); n != 0 || err != nil {
			w.Errorf("released %d (%v), want nothing: it is another hold", n, err)
		}
		w.renews("me", "db")
		k = w.keeps("me", "db")
		if n, err := k.Release(w.ctx()); n != 1 || err != nil {
			w.Errorf("released %d (%v), want what was kept", n, err)
		}
		w.lost(lockkeeper.NoReason, "me", "db")
	})
}

// flaky is an engine that can't be reached at times.
type flaky struct {
	lockkeeper.Engine
	down atomic.Bool
}

func (f *flaky) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if f.down.Load() {
		return lockkeeper.Lease{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "no route"}
	}
	return f.Engine.Attach(ctx, s, notify)
}

// TestKeepUnreachable: if the engine can't be reached for less than the lease, the hold lives on.
// For longer, the Keepalive reports the loss before the engine can grant another claim.
func TestKeepUnreachable(t *testing.T) {
	inMemory(t, func(w *world) {
		f := &flaky{Engine: w.engines[0]}
		w.ok("me", "db")
		k, err := grab.New(f).Keep(w.ctx(), w.name("me", "db"), grab.Terms{}, w.clock)
		if err != nil {
			w.Fatal(err)
		}
		defer k.Stop()
		w.wait(1, "next", "db")
		w.keeps("next", "db")
		w.pass(grab.DefaultTTL)
		f.down.Store(true)
		w.pass(grab.DefaultTTL / 2)
		f.down.Store(false)
		w.pass(grab.DefaultTTL)
		if k.Err() != nil {
			w.Fatalf("lost: %v", k.Err())
		}
		f.down.Store(true)
		<-k.Done()
		w.isLost(k.Err(), lockkeeper.Unreachable)
		if !errors.Is(k.Err(), lockkeeper.ErrUnavailable) {
			w.Errorf("got %v, want what failed in it", k.Err())
		}
		if a, err := w.process().Look(w.ctx(), w.name("next", "db")); err != nil || a.State != lockkeeper.Waiting {
			w.Errorf("the next has it already: %s (%v)", a.State, err)
		}
	})
}

// TestWaitUnreachable: if the engine can't be reached, a wait ends with its claim, and the error
// does not say that the path is taken.
func TestWaitUnreachable(t *testing.T) {
	inMemory(t, func(w *world) {
		f := &flaky{Engine: w.engines[0]}
		w.ok("holder", "db")
		w.keeps("holder", "db")
		began := time.Now()
		_, err := grab.New(f).Wait(w.Context(), w.request("me", "db"), time.Hour, func(grab.Answer) { f.down.Store(true) })
		if !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrNotAcquired) ||
			time.Since(began) > grab.DefaultTTL {
			w.Errorf("after %s: %v; want ErrUnavailable within a TTL", time.Since(began), err)
		}
	})
}

// TestKeepSuspended: a computer that slept for longer than the lease has lost the hold. The
// Keepalive notices that by its clock, which went on during the sleep.
func TestKeepSuspended(t *testing.T) {
	inMemory(t, func(w *world) {
		var slept atomic.Int64
		w.ok("me", "db")
		k, err := w.process().Keep(w.ctx(), w.name("me", "db"),
			grab.Terms{}, func() time.Duration { return w.clock() + time.Duration(slept.Load()) })
		if err != nil {
			w.Fatal(err)
		}
		defer k.Stop()
		w.pass(grab.DefaultTTL)
		slept.Store(int64(time.Hour))
		if k.Remaining() != 0 {
			w.Errorf("%s remain, want nothing", k.Remaining())
		}
		w.isLost(k.Err(), lockkeeper.Suspended)
		<-k.Done()
		w.isLost(k.Err(), lockkeeper.Suspended)
	})
}
