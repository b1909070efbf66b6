package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// bench is a table with one session, whose claims get ids from a counter.
type bench struct {
	*testing.B
	table *Table
	key   lockkeeper.Key
	id    uint64
}

func newBench(b *testing.B) *bench {
	t := New()
	reply, err := t.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: "bench"}})
	if err != nil {
		b.Fatal(err)
	}
	return &bench{B: b, table: t, key: reply.Lease.Key}
}

func (b *bench) claim(path string, want lockkeeper.State) uint64 {
	b.id++
	reply, err := b.table.Step(&Command{Op: Claim, Key: b.key, At: time.Duration(b.id), Want: lockkeeper.Want{
		ID: b.id, Wait: lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}},
	}})
	if err != nil || reply.Status.State != want {
		b.Fatalf("claim %d of %s: %v, %v", b.id, path, reply.Status.State, err)
	}
	return b.id
}

func (b *bench) release(id uint64) {
	if _, err := b.table.Step(&Command{
		Op:     End,
		Key:    b.key,
		Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: id},
	}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFree is a claim and its release on a path that nobody else wants.
func BenchmarkFree(b *testing.B) {
	for _, path := range []string{"db", "db/a", "a/b/c/d"} {
		b.Run(path, func(b *testing.B) {
			t := newBench(b)
			b.ReportAllocs()
			for b.Loop() {
				t.release(t.claim(path, lockkeeper.Held))
			}
		})
	}
}

// BenchmarkManyPaths is a claim and its release on one path after the other, of more paths than there
// are estimates of hold times for, while time passes.
func BenchmarkManyPaths(b *testing.B) {
	t := newBench(b)
	var paths []string
	for i := range 2 * MaxHoldTimes {
		paths = append(paths, fmt.Sprintf("db/%d", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		t.release(t.claim(paths[i%len(paths)], lockkeeper.Held))
	}
}

// BenchmarkReleaseWithWaiters measures a release that hands the path to the first of many waiters,
// and the arrival of one more. The cost must not grow with their number.
func BenchmarkReleaseWithWaiters(b *testing.B) {
	for _, waiters := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			t := newBench(b)
			held := t.claim("db/hot", lockkeeper.Held)
			for range waiters {
				t.claim("db/hot", lockkeeper.Waiting)
			}
			b.ReportAllocs()
			for b.Loop() {
				t.release(held)
				held++ // the next in line
				t.claim("db/hot", lockkeeper.Waiting)
			}
		})
	}
}

// BenchmarkReleaseWithHolds is a claim and its release beside many other holds.
func BenchmarkReleaseWithHolds(b *testing.B) {
	for _, holds := range []int{10, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(holds), func(b *testing.B) {
			t := newBench(b)
			for i := range holds {
				t.claim(fmt.Sprintf("db/%d", i), lockkeeper.Held)
			}
			b.ReportAllocs()
			for b.Loop() {
				t.release(t.claim("db/hot", lockkeeper.Held))
			}
		})
	}
}

// BenchmarkList is a list of all with the evidence of each, where many wait for
// one path: place, reasons, who is in the way, and about how long it will take.
func BenchmarkList(b *testing.B) {
	t := newBench(b)
	t.release(t.claim("db/hot", lockkeeper.Held))
	t.claim("db/hot", lockkeeper.Held)
	for range 1000 {
		t.claim("db/hot", lockkeeper.Waiting)
	}
	b.ReportAllocs()
	for b.Loop() {
		for range t.table.List(lockkeeper.Query{}) {
		}
	}
}
