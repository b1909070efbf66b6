package table

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A worker is one session of a table in a test; its claims get ids from a counter.
type worker struct {
	testing.TB
	table *Table
	key   lockkeeper.Key
	id    uint64
}

func newWorker(t testing.TB, tb *Table, session string) *worker {
	reply, err := tb.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: session, TTL: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	return &worker{TB: t, table: tb, key: reply.Lease.Key}
}

// claim makes a claim with these targets and returns its status; with a priority above 0
// it steals.
func (w *worker) claim(priority int, targets ...lockkeeper.Target) lockkeeper.Status {
	want := lockkeeper.Want{Targets: targets, Priority: priority}
	if priority > 0 {
		want.Steal = lockkeeper.Ask
	}
	return w.want(want)
}

// want makes a claim that waits without a bound.
func (w *worker) want(want lockkeeper.Want) lockkeeper.Status {
	w.Helper()
	w.id++
	want.ID, want.Wait = w.id, lockkeeper.Forever
	reply, err := w.table.Step(&Command{Op: Claim, Key: w.key, Want: want})
	if err != nil {
		w.Fatal(err)
	}
	return reply.Status
}

func (w *worker) release(id uint64) {
	w.Helper()
	w.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
}

func (w *worker) end(e lockkeeper.Ending) {
	w.Helper()
	if _, err := w.table.Step(&Command{Op: End, Key: w.key, Ending: e}); err != nil {
		w.Fatal(err)
	}
}

func exclusive(path lockkeeper.Path) lockkeeper.Target {
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
}

func permits(path lockkeeper.Path, units, limit int) lockkeeper.Target {
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModePermits, Units: units, Limit: limit}
}

// worked is how much the table looked at for thieves and ghosts in do.
func (t *Table) worked(do func()) int {
	before := t.work
	do()
	return t.work - before
}

// manyThieves has n thieves wait for permits of some paths each, every one of which asks some of 15
// holders of that path: none is ahead of another, since their limits rise.
func (w *worker) manyThieves(n, paths int) {
	at := func(i int) lockkeeper.Path { return lockkeeper.Path(fmt.Sprintf("busy/p%d", i)) }
	for i := range paths {
		for k := range 15 {
			w.claim(0, permits(at(i), 1<<k, 40_000))
		}
	}
	for i := range n {
		var all []lockkeeper.Target
		for k := range paths {
			all = append(all, permits(at(k), 20_000, 33_000+i))
		}
		if st := w.claim(1, all...); st.State != lockkeeper.Waiting {
			w.Fatalf("thief %d is %s", i, st.State)
		}
	}
}

// TestThievesCostOthersNothing: a claim and its release on a path elsewhere look at none of 450
// thieves, nor do they below a path that thieves have intents on; and what happens at the
// path of the thieves costs a bounded number of steps for each of them.
func TestThievesCostOthersNothing(t *testing.T) {
	for _, c := range []struct{ thieves, paths int }{{450, 1}, {80, 20}} {
		tb := New()
		alice, bob := newWorker(t, tb, "alice"), newWorker(t, tb, "bob")
		alice.manyThieves(c.thieves, c.paths)
		for _, target := range []lockkeeper.Target{exclusive("calm/x"), exclusive("busy/x"), permits("busy/y", 1, 1)} {
			if n := tb.worked(func() { bob.release(bob.claim(0, target).Ref.ID) }); n > 0 {
				t.Errorf("beside %d thieves of %d paths, a claim and release of %s look at %d things", c.thieves, c.paths,
					target.Path, n)
			}
		}
		most := (c.thieves + 1) * c.paths * (15 + 2 + mostHolders*mostSums)
		if n := tb.worked(func() { bob.claim(0, permits("busy/p0", 1, 40_000)) }); n == 0 || n > most {
			t.Errorf("a claim of the path of %d thieves looks at %d things, want some, and %d at the most", c.thieves, n, most)
		}
	}
}

// TestSearchForUnitsIsBounded: with more than 64 holders, or more than 64 sums, holders are
// asked in the order of R10 until they suffice; else the fewest units are found. Both take a
// bounded number of steps.
func TestSearchForUnitsIsBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		holders []int // their units
		missing int
		want    []int // the units of those asked
	}{
		{"64 holders", append(slices.Repeat([]int{2}, 63), 1), 3, []int{2, 1}},
		{"65 holders", append(slices.Repeat([]int{2}, 64), 1), 3, []int{2, 2}},
		{"64 sums", []int{40, 32, 16, 8, 4, 2, 1}, 64, []int{40, 16, 8}},
		{"65 sums", []int{40, 32, 16, 8, 4, 2, 1}, 65, []int{40, 32}},
		{"a huge number of sums", []int{1 << 24, 1 << 25, 1 << 26, 3, 5, 7, 11, 13, 17, 19, 1 << 27}, 1 << 26,
			[]int{1 << 24, 1 << 25, 1 << 26}},
		{"not enough", []int{1, 2}, 4, nil},
	} {
		var holders []*entry
		for _, units := range c.holders {
			holders = append(holders, &entry{permits: int32(units)})
		}
		chosen, steps := fewestUnits(holders, c.missing)
		var units []int
		for _, p := range chosen {
			units = append(units, p.units())
		}
		if !slices.Equal(units, c.want) || steps > 3*mostHolders*mostSums {
			t.Errorf("%s: those with %v units are asked after %d steps, want %v", c.name, units, steps, c.want)
		}
	}
}

// BenchmarkBesideThieves is a claim and its release beside thieves elsewhere.
func BenchmarkBesideThieves(b *testing.B) {
	for _, thieves := range []int{0, 450} {
		b.Run(fmt.Sprint(thieves), func(b *testing.B) {
			tb := New()
			newWorker(b, tb, "alice").manyThieves(thieves, 1)
			bob := newWorker(b, tb, "bob")
			for b.Loop() {
				bob.release(bob.claim(0, exclusive("calm/x")).Ref.ID)
			}
		})
	}
}

// TestThiefKnowsWhatItIsInsideOf: a thief may rob a hold or not as claims come and go
// through which it is inside of that hold, wherever those wait or are held.
func TestThiefKnowsWhatItIsInsideOf(t *testing.T) {
	tb := New()
	w := newWorker(t, tb, "a")
	inside := func(id uint64, target lockkeeper.Target, priority int) {
		want := lockkeeper.Want{
			Inside:   lockkeeper.Ref{Session: "a", ID: id},
			Targets:  []lockkeeper.Target{target},
			Priority: priority,
		}
		if priority > 0 {
			want.Steal = lockkeeper.Ask
		}
		w.want(want)
	}
	asks := func(id, holder uint64) {
		t.Helper()
		if err := tb.Check(); err != nil {
			t.Error(err)
		}
		c := tb.find(lockkeeper.Ref{Session: "a", ID: id})
		if v := c.victims(); len(v) != 1 || v[0].id != holder {
			t.Errorf("thief %d asks %d holders, the first of them is not %d", id, len(v), holder)
		}
	}
	w.claim(0, permits("pool", 2, 3))
	w.claim(0, permits("pool", 1, 3)) // 2, whom a thief of one unit asks unless it is inside of it
	w.claim(0, exclusive("x"))        // 3
	w.claim(1, exclusive("x"))        // 4, a thief elsewhere
	inside(6, permits("pool", 1, 3), 1)
	asks(5, 2)                   // 6 has not come yet
	inside(7, exclusive("y"), 0) // 6
	inside(2, exclusive("z"), 0) // 7: so 5 is inside 6, inside 7, inside 2
	asks(5, 1)
	w.release(5)
	inside(6, permits("pool", 1, 3), 1) // 8
	asks(8, 1)
	w.release(7)
	asks(8, 2)
}
