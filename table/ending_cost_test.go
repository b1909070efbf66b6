package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// crowd has w make n claims of every sort that the end of a session has to undo: holds that thieves
// ask, that others wait for, and that disturb quiet periods; claims that wait, steal, and
// are frozen; and a chain of claims, each inside the one before.
func (w *worker) crowd(n int, others *worker) {
	others.want(lockkeeper.Want{Freeze: time.Hour, Targets: []lockkeeper.Target{exclusive("frozen")}})
	others.claim(0, exclusive("taken"))
	others.claim(0, permits("pool", 4, 4))
	for i := range n {
		var inside lockkeeper.Ref
		if w.id > 0 {
			inside = lockkeeper.Ref{Session: w.key.Session, ID: w.id}
		}
		w.want(lockkeeper.Want{Inside: inside,
			Targets: []lockkeeper.Target{exclusive(lockkeeper.Path(fmt.Sprintf("wide/%d", i)))}})
		switch i % 5 {
		case 0:
			w.claim(0, lockkeeper.Target{Path: "shared", Mode: lockkeeper.ModeShared})
		case 1:
			w.claim(0, exclusive("frozen"))
		case 2:
			w.claim(0, exclusive("taken"))
		case 3:
			w.claim(1, permits("pool", 1, 4+i)) // a limit of its own
		case 4:
			w.claim(0, permits("wide", 1, n))
		}
	}
	for range 10 {
		others.claim(1, exclusive("wide"))
		others.claim(1, exclusive("shared"))
	}
	for range n / 20 {
		soft := lockkeeper.Want{
			WriterPolicy: lockkeeper.Soft,
			Quiet:        time.Second,
			Targets:      []lockkeeper.Target{exclusive("wide")},
		}
		others.want(soft)
	}
}

// TestEndOfASessionCostsOnceForEachClaim: the end of a session with ten times the claims looks at about ten
// times as much, whether it leaves, expires, or is taken over by an attach that names nothing.
func TestEndOfASessionCostsOnceForEachClaim(t *testing.T) {
	ends := map[string]func(w *worker){
		"leaves": func(w *worker) { w.end(lockkeeper.Ending{Kind: lockkeeper.Leave}) },
		"expires": func(w *worker) {
			if _, err := w.table.Step(&Command{Op: Pass, At: 2 * time.Minute}); err != nil {
				w.Fatal(err)
			}
		},
		"is taken over": func(w *worker) {
			s := lockkeeper.Session{ID: w.key.Session, TTL: time.Minute, Epoch: w.key.Epoch}
			if _, err := w.table.Step(&Command{Op: Attach, Session: s}); err != nil {
				w.Fatal(err)
			}
		},
	}
	for name, end := range ends { // order does not matter
		t.Run(name, func(t *testing.T) {
			cost := func(n int) int {
				tb := New()
				others, w := newWorker(t, tb, "others"), newWorker(t, tb, "w")
				w.crowd(n, others)
				cost := tb.worked(func() { end(w) })
				if err := tb.Check(); err != nil {
					t.Fatal(err)
				}
				if s := tb.sessions["w"]; s != nil && s.claims.length > 0 {
					t.Fatalf("%d claims are left", s.claims.length)
				}
				return cost
			}
			if few, many := cost(200), cost(2000); many > 15*few || many > 20*2000 {
				t.Errorf("the end of 2,000 claims looks at %d things, that of 200 at %d", many, few)
			}
		})
	}
}

// TestRestoreSortsOnce: a snapshot of sessions that wait in one line in another order than that of
// their ids, and of ended claims out of their order, is restored at a cost that grows with the
// number of claims.
func TestRestoreSortsOnce(t *testing.T) {
	cost := func(n int) int {
		snap := snapshotOfALine(t, n)
		tb, err := Restore(snap)
		if err != nil {
			t.Fatal(err)
		}
		return tb.work
	}
	if few, many := cost(200), cost(2000); many > 15*few || many > 20*2000 {
		t.Errorf("2,000 claims are restored with %d looks, 200 with %d", many, few)
	}
}

// snapshotOfALine is a table in which n sessions wait for one path, in any order, and one session has n
// ended claims, which ended in any order.
func snapshotOfALine(t testing.TB, n int) Snapshot {
	tb := New()
	random := rand.New(rand.NewPCG(1, 0))
	newWorker(t, tb, "holder").claim(0, exclusive("db"))
	for _, i := range random.Perm(n) {
		newWorker(t, tb, fmt.Sprintf("s%06d", i)).claim(0, exclusive("db"))
	}
	w := newWorker(t, tb, "w")
	for i := range n {
		w.claim(0, exclusive(lockkeeper.Path(fmt.Sprintf("x/%d", i))))
	}
	for i, id := range random.Perm(n) {
		at := time.Duration(i) * time.Microsecond
		if _, err := tb.Step(&Command{Op: Gone, At: at}); err != nil {
			t.Fatal(err)
		}
		tb.endClaim(tb.find(lockkeeper.Ref{Session: "w", ID: uint64(id) + 1}), lockkeeper.Superseded, "")
		tb.settle()
	}
	return tb.Snapshot()
}

// TestGhostsAndFreezesCostOthersNothing: a claim and its release elsewhere, and its announced hold, look
// at none of many ghosts, freezes and frozen claims.
func TestGhostsAndFreezesCostOthersNothing(t *testing.T) {
	tb := New()
	alice, bob := newWorker(t, tb, "alice"), newWorker(t, tb, "bob")
	for i := range 1000 {
		alice.claim(0, permits(lockkeeper.Path(fmt.Sprintf("a/g%d", i)), 1, 9))
		alice.end(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   lockkeeper.Ref{Session: "alice", ID: alice.id},
			Force: true,
		})
	}
	for i := range MaxFreezes {
		path := lockkeeper.Path(fmt.Sprintf("a/f%d", i))
		alice.want(lockkeeper.Want{Freeze: time.Hour, Targets: []lockkeeper.Target{exclusive(path)}})
		alice.claim(0, exclusive(path))
	}
	if len(tb.unacked.due) != 1000 || len(tb.frozen) != MaxFreezes {
		t.Fatalf("there are %d ghosts and %d frozen claims", len(tb.unacked.due), len(tb.frozen))
	}
	for _, target := range []lockkeeper.Target{exclusive("calm/x"), exclusive("a/x"), permits("a/y", 1, 5)} {
		n := tb.worked(func() {
			bob.release(bob.want(lockkeeper.Want{Targets: []lockkeeper.Target{target}, Expected: time.Minute}).Ref.ID)
		})
		if n > 2 { // it looks once at what ghosts hold at an ancestor
			t.Errorf("a claim and release of %s look at %d things", target.Path, n)
		}
	}
	if err := tb.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkEndOfASession is the end of a session with so many holds, each beside others of its tree.
func BenchmarkEndOfASession(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var paths []lockkeeper.Path
			for i := range n {
				paths = append(paths, lockkeeper.Path(fmt.Sprintf("a/%d", i)))
			}
			for b.Loop() {
				b.StopTimer()
				tb := New()
				w := newWorker(b, tb, "w")
				for _, path := range paths {
					w.claim(0, exclusive(path))
				}
				b.StartTimer()
				w.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*b.N), "ns/claim")
		})
	}
}

// BenchmarkRestore is the restoring of a table in which so many sessions wait in one line.
func BenchmarkRestore(b *testing.B) {
	for _, n := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap := snapshotOfALine(b, n)
			for b.Loop() {
				if _, err := Restore(snap); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*n*b.N), "ns/claim")
		})
	}
}
