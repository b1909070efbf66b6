package table

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestLabelsArePacked: a label comes back from its text as it was, whatever its lengths.
func TestLabelsArePacked(t *testing.T) {
	for _, as := range []int{0, 1, 127, 128, 300} {
		for _, note := range []int{0, 1, 127, 128, 512, 20_000} {
			for _, link := range []int{0, 5} {
				l := lockkeeper.Label{
					As: strings.Repeat("a", as), Note: strings.Repeat("n", note), Link: strings.Repeat("l", link),
				}
				if got := pack(&l).unpack(); got != l {
					t.Errorf("lengths %d, %d, %d: it comes back as %+v", as, note, link, got)
				}
			}
		}
	}
	if pack(&lockkeeper.Label{}) != "" {
		t.Error("an empty label takes memory")
	}
}

// TestNodesRestForAWhile: of paths that nobody claims any more, the table keeps a bounded number, and
// those that were claimed last. What rests blocks nobody.
func TestNodesRestForAWhile(t *testing.T) {
	tb := New()
	w := newWorker(t, tb, "w")
	for i := range 3 * mostIdle {
		path := lockkeeper.Path(fmt.Sprintf("db/%d", i))
		w.claim(0, exclusive(path))
		if w.release(w.id); tb.nodes.find(path) == nil {
			t.Fatalf("%s is gone at once", path)
		}
	}
	if n := tb.nodes.length; n > mostIdle+1 {
		t.Errorf("%d nodes without claims, want %d at most", n, mostIdle+1)
	}
	if err := tb.Check(); err != nil {
		t.Error(err)
	}
	if st := w.claim(0, exclusive("db")); st.State != lockkeeper.Held {
		t.Errorf("what rests below db blocks it: it is %s", st.State)
	}
}

// TestAnIDThatEndsTwiceInOneStep: a hold of a session without a TTL ends by its longest hold, and in the
// same step the session claims again with its id and is refused at once. The answer is about the
// second claim.
func TestAnIDThatEndsTwiceInOneStep(t *testing.T) {
	tb := New()
	step := func(c Command) Reply {
		reply, err := tb.Step(&c)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	key := step(Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}}).Lease.Key
	step(Command{Op: Claim, Key: key, Want: lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{exclusive("x")}}})
	short := lockkeeper.Want{ID: 2, MaxHold: time.Second, Targets: []lockkeeper.Target{exclusive("y")}}
	step(Command{Op: Claim, Key: key, Want: short})
	again := lockkeeper.Want{ID: 2, Targets: []lockkeeper.Target{exclusive("x")}}
	st := step(Command{At: time.Minute, Op: Claim, Key: key, Want: again}).Status
	if st.Reason != lockkeeper.TimedOut || st.Fence != 0 || len(st.Grants) != 1 || st.Grants[0].Path != "x" {
		t.Errorf("the answer is %s of %v with fence %d, want a refusal of x", st.Reason, st.Grants, st.Fence)
	}
}

// TestPassesAreReset: after very many passes no mark of an earlier one is taken for a new one.
func TestPassesAreReset(t *testing.T) {
	tb := New()
	w, thief := newWorker(t, tb, "w"), newWorker(t, tb, "thief")
	w.claim(0, exclusive("x"))
	thief.claim(1, exclusive("x"))
	tb.passes = mostPasses + 1
	for _, c := range tb.everyClaim() {
		c.pass = 1
	}
	w.claim(0, exclusive("x"))
	if err := tb.Check(); err != nil || tb.passes > 100 {
		t.Errorf("after a reset %d passes are counted: %v", tb.passes, err)
	}
	for _, c := range tb.everyClaim() {
		if c.pass > tb.passes {
			t.Errorf("claim %s has the mark of pass %d of %d", c.ref(), c.pass, tb.passes)
		}
	}
}

// TestRareParts: claims that need the rare part get one of their own, and leave nothing in it for the
// next claim in their memory.
func TestRareParts(t *testing.T) {
	tb := New()
	w, thief := newWorker(t, tb, "w"), newWorker(t, tb, "thief")
	for range 3 {
		st := w.want(lockkeeper.Want{MaxHold: time.Minute, Targets: []lockkeeper.Target{permits("pool", 1, 1)}})
		thief.claim(1, permits("pool", 1, 1))
		w.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: st.Ref, Label: lockkeeper.Label{Note: "why"}})
		w.release(w.id)
		thief.release(thief.id)
		if err := tb.Check(); err != nil {
			t.Fatal(err)
		}
		plainly := w.claim(0, exclusive("x"))
		if plainly.Text != "" || plainly.Asked != nil || plainly.Grants[0].Slot != 0 || plainly.Left != forever {
			t.Errorf("a plain claim has %+v", plainly)
		}
		w.release(w.id)
		w.want(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("y")}})
		w.release(w.id)
	}
}
