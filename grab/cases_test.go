package grab_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// TestPathWaitsForPathsBelow is case T3.1.
func TestPathWaitsForPathsBelow(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("A", "mydatabase/mytest")
		w.ok("B", "mydatabase/yourtest")
		w.wait(1, "C", "mydatabase")
		w.wait(2, "D", "mydatabase/third") // behind C
		w.released(1, "A", "mydatabase/mytest")
		w.wait(1, "C", "mydatabase")
		w.released(1, "B", "mydatabase/yourtest")
		w.ok("C", "mydatabase")
		w.wait(1, "D", "mydatabase/third")
		w.released(1, "C", "mydatabase")
		w.ok("D", "mydatabase/third")
	})
}

// TestGoldenSession checks the statuses of case T3.2. A position counts the whole line.
func TestGoldenSession(t *testing.T) {
	onEachEngine(t, func(w *world) {
		fence := w.ok("me", "lunch").Fence
		w.wait(0, "me", "lunch/1") // the same name at another path is another owner
		first := w.wait(0, "you", "lunch").Ticket
		w.wait(0, "you", "lunch/2")
		w.wait(0, "charly", "lunch/2")
		w.ok("me", "dinner")
		w.wait(1, "you", "dinner")
		w.wait(0, "charly", "lunch")
		w.wait(0, "charly", "lunch/1")
		if again := w.wait(0, "you", "lunch").Ticket; again != first {
			w.Errorf("grabbed again it has ticket %d, want its own, %d", again, first)
		}
		w.released(1, "you", "lunch/2")
		w.wait(0, "me", "lunch/1")
		w.wait(0, "charly", "lunch/2")
		if again := w.ok("me", "lunch").Fence; again != fence {
			w.Errorf("grabbed again it has fence %d, want %d", again, fence)
		}
		w.released(1, "me", "lunch")
		// Of the names that wait for lunch/1 or lunch, me came first.
		w.ok("me", "lunch/1")
		w.wait(0, "you", "lunch")
		w.wait(0, "charly", "lunch/2")
		w.released(1, "charly", "lunch/2")
		w.released(1, "me", "lunch/1")
		w.ok("you", "lunch")
		w.wait(0, "charly", "lunch")
		w.wait(0, "charly", "lunch/1")
	})
}

// TestSharers: shared claims are granted together, each with its own TTL. An exclusive claim waits
// for the last of them, and later shared claims wait behind it. A claim of a/b/c shares a/b and a
// with other claims below.
func TestSharers(t *testing.T) {
	inMemory(t, func(w *world) {
		share := func(as string) grab.Request {
			return grab.Request{As: as, Targets: []lockkeeper.Target{shared("a/b")}}
		}
		w.oks(share("one"))
		w.pass(grab.DefaultTTL / 2)
		w.oks(share("two"))
		w.wait(1, "alone", "a/b")
		w.waits(2, share("three"))
		w.ok("elsewhere", "a/c") // shares a with all of them
		w.wait(3, "whole", "a")
		w.pass(grab.DefaultTTL / 2) // one is over
		w.expired("one", "a/b")
		w.wait(1, "alone", "a/b")
		w.waits(2, share("three"))
		w.ok("elsewhere", "a/c")
		w.released(1, "two", "a/b")
		w.ok("alone", "a/b")
		w.released(1, "alone", "a/b")
		w.oks(share("three")) // it came before whole
		w.wait(1, "whole", "a")
		w.wait(2, "deep", "a/b/c")
		w.released(1, "three", "a/b")
		w.released(1, "elsewhere", "a/c")
		w.ok("whole", "a")
		w.released(1, "whole", "a")
		w.ok("deep", "a/b/c")
		w.ok("sibling", "a/b/d")
		w.oks(grab.Request{As: "root", Targets: []lockkeeper.Target{exclusive("b")}})
		w.wait(1, "middle", "a/b")
	})
}

// TestReleaseOfAnotherNameChangesNothing is case T3.6 c: a release ends only the claim of its own
// name.
func TestReleaseOfAnotherNameChangesNothing(t *testing.T) {
	onEachEngine(t, func(w *world) {
		fence := w.ok("holder", "db").Fence
		w.released(0, "stranger", "db")
		w.released(0, "holder", "db/x")
		w.released(0, "holder", "db", "other")
		w.wait(1, "stranger", "db")
		w.released(1, "stranger", "db")
		w.released(0, "stranger", "db")
		if a := w.renews("holder", "db"); a.State != lockkeeper.Held || a.Fence != fence {
			w.Errorf("the holder has %s with fence %d, want it unharmed", a.State, a.Fence)
		}
	})
}

// TestCancelledClaimSeparatesNoOthers is case T3.6 e.
func TestCancelledClaimSeparatesNoOthers(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("W", "a/1")
		w.wait(1, "Z", "a")
		w.wait(2, "Y", "a/2")
		w.released(1, "Z", "a")
		w.ok("Y", "a/2")
		w.ok("V", "a/3")
	})
}

// TestOneLockByAnySpelling is case T3.6 h: other spellings and another order of the paths give the
// same name.
func TestOneLockByAnySpelling(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("me", "q")
		w.ok("me", "q/")
		w.wait(1, "you", "/q")
		w.ok("me", "a//b", "c")
		w.ok("me", "c", "a/b/")
		w.wait(1, "you", "a/b")
		if a, b := w.name("a", "b/c"), w.name("ab", "c"); a.Session() == b.Session() {
			w.Error("two names have one session")
		}
		if a, b := w.name("me", "a", "b"), w.name("me", "a/b"); a.Session() == b.Session() {
			w.Error("two sets of paths have one session")
		}
		// Another version must compute the same id; otherwise both would hold.
		if id := w.name("ci-17", "b", "a").Session(); id != "grab-lthvdo8njqr4a0apgo5h0f4die3qjjme" {
			w.Errorf("the session is %s", id)
		}
		long := w.name(strings.Repeat("n", lockkeeper.MaxAsBytes), strings.Repeat("p", lockkeeper.MaxPathBytes))
		if id := long.Session(); len(id) > lockkeeper.MaxSessionID {
			w.Errorf("its session id has %d bytes", len(id))
		}
		w.ok(long.As, string(long.Paths[0]))
	})
}

// TestWrongInput: one error names everything that is wrong with a request, and no claim is made.
func TestWrongInput(t *testing.T) {
	inMemory(t, func(w *world) {
		p := w.process()
		_, err := p.Grab(w.ctx(), grab.Request{
			As: " ", Targets: []lockkeeper.Target{exclusive("a"), exclusive("a"), permits("b", 2, 1), shared("..")},
			Priority: lockkeeper.MaxPriority + 1, Terms: grab.Terms{TTL: time.Millisecond, For: -1},
		})
		for _, word := range []string{"no name", "named twice", "2 units", `".."`, "priority", "TTL 1ms", "hold for -1ns"} {
			if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), word) {
				w.Errorf("got %v, want %q in it", err, word)
			}
		}
		bad := grab.Name{As: strings.Repeat("x", lockkeeper.MaxAsBytes+1), Paths: []lockkeeper.Path{"a\n", "a\n"}}
		_, looked := p.Look(w.ctx(), bad)
		_, renewed := p.Renew(w.ctx(), bad, grab.Terms{TTL: time.Millisecond})
		_, released := p.Release(w.ctx(), bad)
		for _, err := range []error{looked, renewed, released} {
			if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "129 bytes") ||
				!strings.Contains(err.Error(), "control character") {
				w.Errorf("got %v, want all that is wrong", err)
			}
		}
		if n := w.listed(); n != 0 {
			w.Errorf("%d claims were made", n)
		}
	})
}

// TestAnotherRequest: a repeat cannot change the mode, the units or the paths of a claim; it can
// change the limit of a waiting claim, and raise the priority. Another limit of a held claim changes
// nothing.
func TestAnotherRequest(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.oks(grab.Request{As: "reader", Targets: []lockkeeper.Target{shared("db")}})
		_, err := w.process().Grab(w.ctx(), w.request("reader", "db"))
		if !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), "reader holds shared db already") {
			w.Errorf("got %v, want what it has", err)
		}
		w.oks(grab.Request{As: "reader", Targets: []lockkeeper.Target{shared("db")}, Note: "another", Priority: -1})

		limited := func(as string, units, limit, priority int) grab.Request {
			return grab.Request{As: as, Targets: []lockkeeper.Target{permits("pool", units, limit)}, Priority: priority}
		}
		w.oks(limited("one", 1, 1, 0))
		w.waits(1, limited("two", 1, 1, 0))
		w.waits(2, limited("three", 1, 1, 0))
		if _, err := w.process().Grab(w.ctx(), limited("three", 2, 2, 0)); !errors.Is(err, lockkeeper.ErrInvalid) ||
			!strings.Contains(err.Error(), "three waits for 1 of 1 permits of pool already") {
			w.Errorf("got %v, want what it has", err)
		}
		w.waits(1, limited("three", 1, 1, 5))
		w.waits(1, limited("three", 1, 1, 0)) // never lowered
		if a := w.oks(limited("three", 1, 2, 5)); a.Grants[0].Slot != 2 {
			w.Errorf("slot %d, want 2", a.Grants[0].Slot)
		}
		for _, priority := range []int{5, 6} {
			a := w.oks(limited("three", 1, 3, priority))
			if a.Grants[0].Slot != 2 || a.Grants[0].Limit != 2 || a.Priority != priority {
				w.Errorf("another limit of what is held: %+v, priority %d", a.Grants[0], a.Priority)
			}
		}
		_, err = w.process().Grab(w.ctx(), limited("three", 2, 3, 5))
		if !errors.Is(err, lockkeeper.ErrInvalid) ||
			!strings.Contains(err.Error(), "three holds 1 of 2 permits of pool already") {
			w.Errorf("other units of what is held: %v, want what it has", err)
		}
	})
}

// beforeClaim is an engine that calls first before the next claim.
type beforeClaim struct {
	lockkeeper.Engine
	first func()
}

func (e *beforeClaim) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if first := e.first; first != nil {
		e.first = nil
		first()
	}
	return e.Engine.Claim(ctx, k, w)
}

// TestLimitArrivesAfterGrant: a repeat with another limit is ok if the claim was granted before, also
// just before the limit arrives.
func TestLimitArrivesAfterGrant(t *testing.T) {
	onEachEngine(t, func(w *world) {
		limited := func(as string, limit int) grab.Request {
			return grab.Request{As: as, Targets: []lockkeeper.Target{permits("pool", 1, limit)}}
		}
		w.oks(limited("one", 1))
		w.waits(1, limited("two", 1))
		w.released(1, "one", "pool")
		w.oks(limited("two", 3))

		w.waits(1, limited("three", 1))
		e := &beforeClaim{w.engine(), func() { w.released(1, "two", "pool") }}
		a, err := grab.New(e).Grab(w.ctx(), limited("three", 2))
		if err != nil || a.State != lockkeeper.Held || e.first != nil {
			w.Errorf("%s, %v; want it held", a.State, err)
		}
	})
}
