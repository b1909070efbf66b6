package table

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// bytesEach returns by how many bytes the heap grows for each of n calls of make, without the text of
// the path.
func bytesEach(n int, make func(i int)) float64 {
	inUse := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := inUse()
	for i := range n {
		make(i)
	}
	return (inUse()-before)/float64(n) - float64(len(countedPath(0)))
}

func countedPath(i int) lockkeeper.Path {
	return lockkeeper.Path(fmt.Sprintf("bench/team-%05d/path-%06d", i%1000, i))
}

// TestBytes: a claim that is held or waits, and an end that is remembered, take few bytes, owner and
// note included. The bounds are a few percent above what they take.
func TestBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills a table with claims")
	}
	const n = 50_000
	type filled struct {
		table          *Table
		holder, waiter lockkeeper.Key
	}
	begin := func() *filled {
		f := &filled{table: New()}
		for key, id := range map[*lockkeeper.Key]string{&f.holder: "holder", &f.waiter: "waiter"} { // order does not matter
			reply, err := f.table.Step(&Command{Op: Attach, Session: lockkeeper.Session{ID: id, TTL: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			*key = reply.Lease.Key
		}
		return f
	}
	claim := func(f *filled, key lockkeeper.Key, i int, path lockkeeper.Path) {
		want := lockkeeper.Want{
			ID: uint64(i) + 1, Wait: lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
		}
		want.Label = lockkeeper.Label{As: fmt.Sprintf("runner-%06d", i), Note: fmt.Sprintf("nightly build %06d", i)}
		if _, err := f.table.Step(&Command{Op: Claim, Key: key, Want: want}); err != nil {
			t.Fatal(err)
		}
	}
	release := func(f *filled, i int) {
		ending := lockkeeper.Ending{Kind: lockkeeper.Release, ID: uint64(i) + 1}
		if _, err := f.table.Step(&Command{Op: End, Key: f.holder, Ending: ending}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what string
		most float64
		fill func(f *filled) float64
	}{
		{"held", 308, func(f *filled) float64 {
			return bytesEach(n, func(i int) { claim(f, f.holder, i, countedPath(i)) })
		}},
		{"waiting, each behind another holder", 400, func(f *filled) float64 {
			for i := range n {
				claim(f, f.holder, i, countedPath(i))
			}
			return bytesEach(n, func(i int) { claim(f, f.waiter, i, countedPath(i)) })
		}},
		{"waiting, all for one path", 295, func(f *filled) float64 {
			claim(f, f.holder, 0, countedPath(0))
			return bytesEach(n, func(i int) { claim(f, f.waiter, i, countedPath(0)) })
		}},
		{"remembered", 90, func(f *filled) float64 {
			return bytesEach(n, func(i int) {
				claim(f, f.holder, i, countedPath(i))
				release(f, i)
			})
		}},
	} {
		f := begin()
		if got := c.fill(f); got > c.most {
			t.Errorf("%s: %.0f bytes each, want %.0f at most", c.what, got, c.most)
		} else {
			t.Logf("%s: %.0f bytes each", c.what, got)
		}
		runtime.KeepAlive(f)
	}
}
