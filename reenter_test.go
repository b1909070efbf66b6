package lockkeeper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// F2.4: the lock is free after the last release, not after the first.
func TestReentranceIsCounted(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		outer := must(t)(c.Lock(background, "a"))
		inner := must(t)(c.Lock(outer.Context(), "a/b"))
		ctx := inner.Context()
		if inner.Ref() != outer.Ref() || inner.Fence() != outer.Fence() {
			t.Errorf("another claim: %s and %s", inner.Ref(), outer.Ref())
		}
		outer.Release(background)
		wantErr(t, outer.Err(), lockkeeper.ErrNotHeld)
		if inner.Err() != nil || ctx.Err() != nil || f.state(1) != lockkeeper.Held {
			t.Error("the first release freed the lock for both")
		}
		third := must(t)(c.Lock(ctx, "a")) // the work goes on after its first handle
		inner.Release(background)
		if err := third.Release(background); err != nil {
			t.Error(err)
		}
		if got := f.log(); got != "attach, claim 1, release 1" {
			t.Errorf("calls: %s", got)
		}
	})
}

// T2.22: every handle of a claim ends with it.
func TestLossEndsEveryHandle(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		outer := must(t)(c.Lock(background, "a"))
		inner := must(t)(c.Lock(outer.Context(), "a"))
		a, b := outer.Context(), inner.Context()
		f.news(1, false, func(*lockkeeper.Status) { f.endLocked(1, lockkeeper.Stolen) })
		for _, ctx := range []context.Context{a, b} {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), lockkeeper.ErrLost, lockkeeper.Stolen)
		}
		for _, h := range []*lockkeeper.Hold{outer, inner} {
			wantErr(t, h.Release(background), lockkeeper.ErrLost, lockkeeper.Stolen)
		}
	})
}

// T2.4: the claim has the highest priority of its handles.
func TestReentrancePriority(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		outer := must(t)(c.Lock(background, "l", lockkeeper.WithPriority(1)))
		must(t)(c.Lock(outer.Context(), "l", lockkeeper.WithPriority(5)))
		must(t)(c.Lock(outer.Context(), "l", lockkeeper.WithPriority(3)))
		must(t)(c.Lock(outer.Context(), "l"))
		if got := f.log(); got != "attach, claim 1, amend 1 exclusive p5" {
			t.Errorf("calls: %s", got)
		}
	})
}

func TestReentranceCoversLowerPathsAndModes(t *testing.T) {
	type req = lockkeeper.Request
	one := func(r req) []req { return []req{r} }
	for _, tc := range []struct {
		name        string
		held, asked []req
		covered     bool
	}{
		{"exclusive covers shared below", one(lockkeeper.Exclusive("a")), one(lockkeeper.Shared("a/b")), true},
		{"exclusive covers permits below", one(lockkeeper.Exclusive("a")), one(lockkeeper.Permits("a/b", 1, 3)), true},
		{"not above", one(lockkeeper.Exclusive("a/b")), one(lockkeeper.Exclusive("a")), false},
		{"not a name that begins alike", one(lockkeeper.Exclusive("a")), one(lockkeeper.Exclusive("ab")), false},
		{"shared covers shared", one(lockkeeper.Shared("a")), one(lockkeeper.Shared("a/b")), true},
		{"shared doesn't cover exclusive", one(lockkeeper.Shared("a")), one(lockkeeper.Exclusive("a")), false},
		{"permits are never counted", one(lockkeeper.Permits("a", 1, 3)), one(lockkeeper.Permits("a", 1, 3)), false},
		{"all or nothing", one(lockkeeper.Exclusive("a")), []req{lockkeeper.Exclusive("a/b"), lockkeeper.Exclusive("c")},
			false},
		{"two targets of one hold", []req{lockkeeper.Exclusive("a"), lockkeeper.Shared("c")},
			[]req{lockkeeper.Exclusive("a/b"), lockkeeper.Shared("c/d")}, true},
	} {
		bubble(t, func(t *tester, f *fake, c *client) {
			outer := must(t)(c.Acquire(background, tc.held...))
			inner := must(t)(c.Acquire(outer.Context(), tc.asked...))
			if covered := inner.Ref() == outer.Ref(); covered != tc.covered {
				t.Errorf("%s: covered %v", tc.name, covered)
			}
			if !tc.covered {
				if inside := f.wants[inner.Ref().ID][0].Inside; inside != outer.Ref() {
					t.Errorf("%s: the engine was told that it is inside %s", tc.name, inside)
				}
				// A hold further out is found too.
				again := must(t)(c.Acquire(inner.Context(), tc.held...))
				if permits := tc.name == "permits are never counted"; (again.Ref() == outer.Ref()) == permits {
					t.Errorf("%s: back in the outer hold: %s", tc.name, again.Ref())
				}
			}
		})
	}
}

// A claim names the innermost enclosing hold that is still held.
func TestInsideIsTheInnermostHold(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		a := must(t)(c.Lock(background, "a"))
		b := must(t)(c.Lock(a.Context(), "b"))
		again := must(t)(c.Lock(b.Context(), "a/x")) // a is entered again, inside b
		inB := must(t)(c.Lock(again.Context(), "c"))
		sibling := must(t)(c.Lock(a.Context(), "d"))
		b.Release(background)
		late := must(t)(c.Lock(context.WithoutCancel(b.Context()), "e"))
		for _, tc := range []struct {
			name         string
			hold, inside *lockkeeper.Hold
		}{{"b", b, a}, {"a claim under a handle entered again", inB, b}, {"a sibling of b", sibling, a},
			{"after the end of b", late, a}} {
			if got := f.wants[tc.hold.Ref().ID][0].Inside; got != tc.inside.Ref() {
				t.Errorf("%s is said to be inside %s, want %s", tc.name, got, tc.inside.Ref())
			}
		}
		if got := f.wants[a.Ref().ID][0].Inside; got != (lockkeeper.Ref{}) || again.Ref() != a.Ref() {
			t.Errorf("the outermost is said to be inside %s; entered again it is %s", got, again.Ref())
		}
	})
}

func TestWithInside(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		parent, stranger := lockkeeper.Ref{Session: "parent", ID: 7}, lockkeeper.Ref{Session: "stranger", ID: 1}
		h := must(t)(c.Lock(background, "a", lockkeeper.WithInside(parent)))
		inner := must(t)(c.Lock(h.Context(), "b"))
		both := must(t)(c.Lock(inner.Context(), "c", lockkeeper.WithInside(parent)))
		for _, tc := range []struct {
			hold *lockkeeper.Hold
			want lockkeeper.Ref
		}{{h, parent}, {inner, h.Ref()}, {both, inner.Ref()}} {
			if got := f.wants[tc.hold.Ref().ID][0].Inside; got != tc.want {
				t.Errorf("%s is said to be inside %s, want %s", tc.hold.Grants()[0].Path, got, tc.want)
			}
		}
		mine := must(t)(c.Lock(background, "a", lockkeeper.WithInside(inner.Ref())))
		if mine.Ref() != h.Ref() {
			t.Errorf("got %s, want another handle of %s", mine.Ref(), h.Ref())
		}
		other := must(t)(c.Lock(h.Context(), "a/x", lockkeeper.WithInside(stranger)))
		if got := f.wants[other.Ref().ID]; other.Ref() == h.Ref() || got[0].Inside != stranger {
			t.Errorf("said by hand to be elsewhere: %s, %v", other.Ref(), got)
		}
	})
}

func TestUpgrade(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Acquire(background, lockkeeper.Shared("a")))
		fence := h.Fence()
		f.with(func() { f.wait = true })
		done := make(chan error)
		go func() { done <- h.Upgrade(background) }()
		synctest.Wait()
		if h.Err() != nil {
			t.Error("the hold is gone while it waits to be exclusive")
		}
		f.news(1, false, func(st *lockkeeper.Status) {
			st.Converting = false
			f.setTargets(f.wants[1][1])
			f.grantLocked(1)
		})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if h.Fence() <= fence {
			t.Errorf("fence %d after %d", h.Fence(), fence)
		}
		if err := h.Downgrade(background); err != nil {
			t.Fatal(err)
		}
		if g := h.Grants(); g[0].Mode != lockkeeper.ModeShared {
			t.Errorf("%v after the downgrade", g)
		}
	})
}

// An upgrade whose context ends is undone, also if it is granted at that moment, and although
// answers are lost.
func TestUpgradeIsUndone(t *testing.T) {
	for _, granted := range []bool{false, true} {
		bubble(t, func(t *tester, f *fake, c *client) {
			h := must(t)(c.Acquire(background, lockkeeper.Shared("a")))
			f.with(func() { f.wait = true })
			ctx, cancel := context.WithCancel(background)
			done := make(chan error)
			go func() { done <- h.Upgrade(ctx) }()
			synctest.Wait()
			if granted {
				f.news(1, true, func(st *lockkeeper.Status) {
					st.Converting = false
					f.setTargets(f.wants[1][1])
				})
			}
			f.with(func() { f.loseRequest = first("amend 1 shared p0") })
			cancel()
			wantErr(t, <-done, lockkeeper.ErrNotAcquired, context.Canceled)
			time.Sleep(5 * time.Second)
			if st := f.news(1, true, func(*lockkeeper.Status) {}); st.Converting || st.Grants[0].Mode != lockkeeper.ModeShared ||
				st.State != lockkeeper.Held {
				t.Errorf("the engine has it as %v, converting %v", st.Grants, st.Converting)
			}
			if h.Err() != nil {
				t.Error("the shared hold is gone")
			}
		})
	}
}

func TestUpgradeRefused(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Acquire(background, lockkeeper.Shared("a")))
		f.with(func() { f.wait = true })
		done := make(chan error)
		go func() { done <- h.Upgrade(background) }()
		synctest.Wait()
		f.news(1, false, func(st *lockkeeper.Status) { st.Converting, st.Reason = false, lockkeeper.Deadlock })
		wantErr(t, <-done, lockkeeper.ErrDeadlock)
		if err := h.Amend(background, lockkeeper.WithPriority(3)); err != nil {
			t.Fatal(err)
		}
		if w := f.wants[1]; w[len(w)-1].Targets[0].Mode != lockkeeper.ModeShared {
			t.Error("amending the priority asked for the upgrade again")
		}
	})
}

func TestDowngradeIsRefusedWhileAnotherHandleNeedsIt(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		other := must(t)(c.Lock(h.Context(), "a/b"))
		reader := must(t)(c.Acquire(h.Context(), lockkeeper.Shared("a/c")))
		wantErr(t, h.Downgrade(background), lockkeeper.ErrInvalid)
		other.Release(background)
		if err := h.Downgrade(background); err != nil {
			t.Error(err)
		}
		if reader.Err() != nil {
			t.Error("the reader lost its handle")
		}
	})
}

// A release waits for an amendment in flight: arriving after the end, the amendment would be a new
// claim.
func TestReleaseWaitsForAmendmentInFlight(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		gate := make(chan struct{})
		f.with(func() {
			f.loseRequest = func(_ context.Context, call string, _ int) error {
				if call == "amend 1 exclusive p2" {
					<-gate
				}
				return nil
			}
		})
		amended, released := make(chan error), make(chan error)
		go func() { amended <- h.Amend(background, lockkeeper.WithPriority(2)) }()
		synctest.Wait()
		go func() { released <- h.Release(background) }()
		synctest.Wait()
		if f.count("release 1") != 0 {
			t.Error("released while the amendment was out")
		}
		close(gate)
		<-amended
		if err := <-released; err != nil {
			t.Error(err)
		}
		if f.state(1) != lockkeeper.Ended {
			t.Errorf("still there: %s", f.log())
		}
	})
}

// Goroutines that share the context of a hold don't share the locks that each of them takes in it:
// the second waits until the first has released.
func TestSiblingsAreNotReentrant(t *testing.T) {
	c := lockkeeper.New(memlock.New())
	defer c.Close()
	outer, err := c.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.Lock(outer.Context(), "item/1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Enqueue(outer.Context(), lockkeeper.Exclusive("item/1"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := second.Status(t.Context()); err != nil || s.State != lockkeeper.Waiting {
		t.Fatalf("a sibling: %+v, %v; want it to wait", s, err)
	}
	inside, err := c.Lock(first.Context(), "item/1")
	if err != nil || inside.Ref() != first.Ref() {
		t.Errorf("inside of it: %v, %v; want another handle", inside, err)
	}
	back, err := c.Lock(first.Context(), "db/x")
	if err != nil || back.Ref() != outer.Ref() {
		t.Fatalf("what the outer one covers: %v, %v; want another handle", back, err)
	}
	if again, err := c.Lock(back.Context(), "item/1"); err != nil || again.Ref() != first.Ref() {
		t.Errorf("through the other handle: %v, %v; want another handle", again, err)
	} else {
		again.Close()
	}
	for _, h := range []*lockkeeper.Hold{first, inside} {
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if h, err := second.Wait(t.Context()); err != nil || h.Ref() == first.Ref() {
		t.Errorf("a sibling after the release: %v, %v", h, err)
	}
}

// A ref that can't name a claim is refused.
func TestWithInsideOfAnUnknownClaim(t *testing.T) {
	for _, inside := range []lockkeeper.Ref{{ID: 1}, {Session: "s"}, {Session: "s\xff", ID: 1}, {Session: "a\nb", ID: 1}} {
		w := lockkeeper.Want{
			ID:      1,
			Inside:  inside,
			Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
		}
		if err := w.Check(); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("inside %q: %v, want ErrInvalid", inside, err)
		}
	}
}
