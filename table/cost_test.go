package table

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestFewAllocations: a claim and its release allocate what is handed out (the
// granted targets), and nothing else once the table has been at work.
func TestFewAllocations(t *testing.T) {
	for name, waiters := range map[string]int{"nobody waits": 0, "many wait": 500} {
		tb := New()
		reply, err := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		targets := []lockkeeper.Target{{Path: "db/hot", Mode: lockkeeper.ModeExclusive}}
		id := uint64(0)
		claim := func() {
			id++
			want := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever, Targets: targets}
			if _, err := tb.Step(&Command{Op: Claim, Key: reply.Lease.Key, At: time.Duration(id), Want: want}); err != nil {
				t.Fatal(err)
			}
		}
		for range waiters {
			claim()
		}
		oldest := uint64(1)
		pair := func() {
			claim()
			ending := lockkeeper.Ending{Kind: lockkeeper.Release, ID: oldest}
			if _, err := tb.Step(&Command{Op: End, Key: reply.Lease.Key, Ending: ending}); err != nil {
				t.Fatal(err)
			}
			oldest++
		}
		for range 2000 {
			pair()
		}
		if n := testing.AllocsPerRun(2000, pair); n > 3 {
			t.Errorf("%s: a claim and its release allocate %.1f times, want 3 at most", name, n)
		}
	}
}

// TestAReleaseLooksAtFew: how many claims a release looks at does not grow with
// the number of those that wait, or of those that are held elsewhere.
func TestAReleaseLooksAtFew(t *testing.T) {
	for _, waiters := range []int{3, 3000} {
		tb := New()
		reply, _ := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}})
		ask := func(id uint64, path lockkeeper.Path, m lockkeeper.Mode) {
			target := lockkeeper.Target{Path: path, Mode: m}
			if m == lockkeeper.ModePermits {
				target.Units, target.Limit = 1, 1
			}
			want := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}}
			if _, err := tb.Step(&Command{Op: Claim, Key: reply.Lease.Key, Want: want}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(waiters) {
			ask(3*i+1, "db/hot", lockkeeper.ModeExclusive)
			ask(3*i+2, "pool", lockkeeper.ModePermits)
			ask(3*i+3, "site", []lockkeeper.Mode{lockkeeper.ModeShared, lockkeeper.ModeExclusive}[i%2])
		}
		for id := range uint64(3) {
			looked, c := 0, tb.find(lockkeeper.Ref{Session: "a", ID: id + 1})
			held := c.held()
			for i := range held {
				p := &held[i]
				p.drop()
				for n, k := range p.places() {
					if n.extra != nil {
						n.candidates(k.set(), func(*claim) { looked++ })
					}
				}
				p.hold()
			}
			if looked > 3 {
				t.Errorf("with %d waiters, the release of claim %d looks at %d of them", waiters, id+1, looked)
			}
		}
	}
}

// TestPlaceOfANewClaimLooksAtFew: telling the place of a claim that has just come looks at no
// more claims in a long line than in a short one.
func TestPlaceOfANewClaimLooksAtFew(t *testing.T) {
	modes := []lockkeeper.Mode{lockkeeper.ModeExclusive, lockkeeper.ModeShared, lockkeeper.ModePermits}
	for _, waiters := range []int{30, 3000} {
		tb := New()
		reply, _ := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "a"}})
		for id := range uint64(waiters) {
			target := lockkeeper.Target{Path: "db/hot", Mode: modes[id%3]}
			if target.Mode == lockkeeper.ModePermits {
				target.Units, target.Limit = 1, 2
			}
			want := lockkeeper.Want{ID: id + 1, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}}
			if _, err := tb.Step(&Command{Op: Claim, Key: reply.Lease.Key, Want: want}); err != nil {
				t.Fatal(err)
			}
			before := tb.Counted()
			st, _ := tb.Explain(lockkeeper.Ref{Session: "a", ID: id + 1})
			if looked := tb.Counted() - before; looked > 10 {
				t.Fatalf("claim %d, %s: its place %d is found by looking at %d others", id+1, target.Mode, st.Position, looked)
			}
		}
	}
}
