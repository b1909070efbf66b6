package interleave_test

import (
	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// program is a small program with package semaphore: its shape, its setup and its goroutines.
type program struct {
	name  string
	shape shape
	start func(b *bench)
}

// explorable returns the program for the explorer.
func (p program) explorable() *interleave.Program {
	var b *bench
	return &interleave.Program{
		Name:  p.name,
		Judge: newJudge(),
		Start: func(w *interleave.World) {
			b = newBench(w, p.shape)
			p.start(b)
		},
		End: func(*interleave.World) error { return b.clear() },
	}
}

// near are keys with different hashes that begin at the same cell, same are keys with the same hash,
// apart are keys that do not collide.
var (
	near  = map[string]uint64{"a": 0, "b": 64, "c": 128}
	same  = map[string]uint64{}
	apart = map[string]uint64{"a": 0, "b": 1, "c": 2}
)

var programs = []program{
	{"limits 1, 2 and 3 on one key", shape{}, func(b *bench) {
		b.setup.use("a", 1)
		for limit := range 3 {
			b.do(func(c *caller) {
				c.use("a", limit+1)
				c.use("a", limit+1)
			})
		}
	}},
	{"four goroutines use one key", shape{}, func(b *bench) {
		b.setup.use("a", 1)
		for _, limit := range []int{1, 1, 2, 3} {
			b.do(func(c *caller) { c.use("a", limit) })
		}
	}},
	{"three goroutines create a key", shape{}, func(b *bench) {
		for limit := range 3 {
			b.do(func(c *caller) { c.use("a", limit+1) })
		}
	}},
	{"a key leaves and returns", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.use("a", 1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"a key leaves and returns among three", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		for limit := range 3 {
			b.do(func(c *caller) { c.use("a", limit+1) })
		}
	}},
	{"a key leaves ahead of another", shape{keys: near}, func(b *bench) {
		a := b.setup.acquire("a", 1)
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.release(a) })
		b.do(func(c *caller) { c.use("b", 1); c.use("b", 2) })
		b.do(func(c *caller) { c.use("b", 2) })
	}},
	{"a key leaves ahead of two others", shape{keys: map[string]uint64{
		"a": 0,
		"b": 1,
		"c": 64,
	}, cells: 8}, func(b *bench) {
		a := b.setup.acquire("a", 1)
		b.setup.acquire("b", 1)
		b.setup.acquire("c", 1)
		b.do(func(c *caller) { c.release(a) })
		b.do(func(c *caller) { c.use("b", 1); c.use("c", 1) })
	}},
	{"an idle key makes room for another", shape{keys: near}, func(b *bench) {
		b.setup.use("a", 1)
		b.do(func(c *caller) { c.use("b", 1) })
		b.do(func(c *caller) { c.use("a", 1); c.use("a", 1) })
	}},
	{"two keys of one hash", shape{keys: same}, func(b *bench) {
		a := b.setup.acquire("a", 1)
		b.do(func(c *caller) { c.release(a); c.use("b", 1) })
		b.do(func(c *caller) { c.use("b", 1); c.use("a", 1) })
	}},
	{"the table grows during a search", shape{keys: apart, cells: 2}, func(b *bench) {
		b.setup.acquire("a", 1)
		b.do(func(c *caller) { c.use("b", 1) })
		b.do(func(c *caller) { c.use("a", 1); c.use("b", 1) })
		b.do(func(c *caller) { c.use("b", 2) })
	}},
	{"the table shrinks during a search", shape{keys: apart, cells: 2}, func(b *bench) {
		c := b.setup
		first, second, third := c.acquire("a", 1), c.acquire("b", 1), c.acquire("c", 1)
		c.release(first)
		c.release(second)
		b.do(func(c *caller) { c.release(third); c.use("a", 1) })
		b.do(func(c *caller) { c.use("c", 1); c.use("a", 1) })
	}},
	{"three keys, of which two may stay idle", shape{keys: near, idle: 2}, func(b *bench) {
		b.setup.use("a", 1)
		for _, key := range []string{"b", "c"} {
			b.do(func(c *caller) { c.use(key, 1); c.use("a", 1) })
		}
	}},
	{"an owner ends beside an acquire and a release", shape{owners: 1}, func(b *bench) {
		s := b.setup.acquireFor(1, "a", 1)
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
		b.do(func(c *caller) { c.acquireFor(1, "a", 2) })
		b.do(func(c *caller) { c.release(s) })
	}},
	{"two Closes and a Release", shape{owners: 1, keys: near}, func(b *bench) {
		s := b.setup.acquireFor(1, "a", 2)
		b.setup.acquireFor(1, "b", 2)
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
		b.do(func(c *caller) { c.close(1) })
		b.do(func(c *caller) { c.release(s) })
	}},
	{"two goroutines release one slot", shape{}, func(b *bench) {
		s := b.setup.acquire("a", 1)
		b.do(func(c *caller) { c.release(s); c.use("a", 1) })
		b.do(func(c *caller) { c.release(s); c.release(s) })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"two goroutines release the last slot", shape{keys: near}, func(b *bench) {
		s := b.setup.acquire("a", 1)
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.release(s) })
		b.do(func(c *caller) { c.release(s); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"the context of an owner ends", shape{owners: 1}, func(b *bench) {
		b.setup.acquireFor(1, "a", 1)
		b.do(func(c *caller) { c.cancel(1); c.use("a", 2) })
		b.do(func(c *caller) { c.acquireFor(1, "a", 3) })
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
	}},
	{"the context ends during Do", shape{owners: 1}, func(b *bench) {
		b.do(func(c *caller) { c.during(1, func() { c.acquireFor(1, "a", 1) }); c.use("a", 1) })
		b.do(func(c *caller) { c.cancel(1) })
		b.do(func(c *caller) { c.acquireFor(1, "a", 2) })
	}},
	{"the list of an owner is compacted", shape{owners: 1}, func(b *bench) {
		c := b.setup
		s := c.acquireFor(1, "a", 9)
		for range 3 {
			c.acquireFor(1, "a", 9)
		}
		b.do(func(c *caller) { c.release(s) })
		b.do(func(c *caller) { c.acquireFor(1, "a", 9) })
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
	}},
	{"refused attempts on unknown keys", shape{keys: near, every: 100}, func(b *bench) {
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.use("a", 0) })
		b.do(func(c *caller) { c.use("c", 0); c.use("b", 2) })
	}},
	{"a handle beside its key, which would leave", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		h := b.setup.handle("a")
		b.do(func(c *caller) { c.useBy(h, "a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
		b.do(func(c *caller) { c.heldBy(h, "a"); c.use("a", 2) })
	}},
	{"a handle ends while its key is used", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		h := b.setup.handle("a")
		b.do(func(c *caller) { c.useLast(h, "a", 1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"a handle ends with Held", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		h := b.setup.handle("a")
		b.do(func(c *caller) { c.useBy(h, "a", 1); c.heldLast(h, "a") })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"two handles end with their slots", shape{keys: near}, func(b *bench) {
		for _, key := range []string{"a", "b"} {
			h := b.setup.handle(key)
			s := b.setup.acquireBy(h, key, 1)
			b.do(func(c *caller) { b.w.LastUse("Release", h, func() { c.release(s) }) })
		}
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"one of two handles ends", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		one, other := b.setup.handle("a"), b.setup.handle("a")
		b.do(func(c *caller) { c.useLast(one, "a", 1) })
		b.do(func(c *caller) { c.useBy(other, "a", 1); c.useBy(other, "a", 2) })
	}},
	{"a handle is created while its key leaves", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		s := b.setup.acquire("a", 1)
		b.do(func(c *caller) { c.release(s) })
		b.do(func(c *caller) { h := c.handle("a"); c.useBy(h, "a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"All and Held beside changes", shape{keys: near}, func(b *bench) {
		s := b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.all() })
		b.do(func(c *caller) { c.release(s); c.held("a") })
		b.do(func(c *caller) { c.use("a", 1) })
	}},
	{"All over two shards", shape{keys: map[string]uint64{"a": 0, "b": 1 << 63}, shards: 2}, func(b *bench) {
		s := b.setup.acquire("a", 1)
		b.do(func(c *caller) { c.all() })
		b.do(func(c *caller) { c.release(s); c.use("b", 1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("b", 2); c.held("a") })
	}},
	{"a handle and an owner end", shape{owners: 1, keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		h := b.setup.handle("a")
		b.do(func(c *caller) {
			if c.acquireForBy(h, 1, "a", 1) == 0 {
				b.w.Forget(h)
			}
		})
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 2) })
	}},
	{"two keys come and go in both orders", shape{keys: near}, func(b *bench) {
		b.do(func(c *caller) { c.use("a", 1); c.use("b", 1) })
		b.do(func(c *caller) { c.use("b", 1); c.use("a", 1) })
	}},
}

// large are programs that take seconds or minutes each, for -long.
var large = []program{
	{"several slots at once", shape{}, func(b *bench) {
		b.setup.use("a", 1)
		for _, n := range []int{2, 2, 1} {
			b.do(func(c *caller) { c.release(c.acquireN("a", n, 3)); c.use("a", 2) })
		}
	}},
	{"three keys, of which one may stay idle", shape{keys: near}, func(b *bench) {
		for _, key := range []string{"a", "b", "c"} {
			b.do(func(c *caller) { c.use(key, 1) })
		}
	}},
	{"an owner of two keys ends", shape{owners: 1, keys: near}, func(b *bench) {
		s := b.setup.acquireFor(1, "a", 1)
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.close(1); c.use("a", 1) })
		b.do(func(c *caller) { c.acquireFor(1, "a", 2); c.acquireFor(1, "b", 2) })
		b.do(func(c *caller) { c.release(s); c.use("a", 1) })
	}},
	{"handles end and are created while their key leaves", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		h := b.setup.handle("a")
		b.do(func(c *caller) { c.useLast(h, "a", 1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 1) })
		b.do(func(c *caller) { h := c.handle("a"); c.useBy(h, "a", 1); c.heldBy(h, "a") })
	}},
	{"five requests with two limits", shape{}, func(b *bench) {
		for _, limit := range []int{3, 3, 6, 6, 3} {
			b.do(func(c *caller) { c.acquire("a", limit) })
		}
	}},
	{"limits 1, 2 and 3 in three rounds", shape{}, func(b *bench) {
		b.setup.use("a", 1)
		for limit := range 3 {
			b.do(func(c *caller) {
				for range 3 {
					c.use("a", limit+1)
				}
			})
		}
	}},
	{"four goroutines, two of them twice", shape{}, func(b *bench) {
		b.setup.use("a", 1)
		b.do(func(c *caller) { c.use("a", 1); c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 2); c.use("a", 2) })
		b.do(func(c *caller) { c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 3) })
	}},
	{"a key leaves and returns among three, for one of them twice", shape{keys: near}, func(b *bench) {
		b.setup.acquire("b", 1)
		b.do(func(c *caller) { c.use("a", 1); c.use("a", 2) })
		b.do(func(c *caller) { c.use("a", 1) })
		b.do(func(c *caller) { c.use("a", 2) })
	}},
	{"four goroutines create a key", shape{}, func(b *bench) {
		for _, limit := range []int{1, 1, 2, 3} {
			b.do(func(c *caller) { c.use("a", limit) })
		}
	}},
}
