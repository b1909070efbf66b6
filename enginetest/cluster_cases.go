package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// device returns the path of a function of a device. The names may contain any characters.
func device(t testing.TB, what ...string) lockkeeper.Target {
	path, err := lockkeeper.PathOf(what...)
	if err != nil {
		t.Fatal(err)
	}
	return exclusive(string(path))
}

// Cases T4: a bound on the queries per device, from many hosts.
var clusterCases = []check{
	{"T4/case T4.1 the same of one device", trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(device(w, "device", "snmp-query"))
		two.queue(device(w, "device", "snmp-query"))
		one.release(one.last)
		two.waitGranted(two.last)
	}},
	{"T4/case T4.2 different things of one device", trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(device(w, "device", "snmp-query"))
		two.hold(device(w, "device", "get-config"))
	}},
	{"T4/case T4.3 three at once", counts | fifo, func(w *world) {
		var holders []*peer
		for range 3 {
			p := w.peer("thread")
			p.hold(permits("device", 1, 3))
			holders = append(holders, p)
		}
		fourth := w.peer("fourth thread")
		fourth.queue(permits("device", 1, 3))
		fourth.stays(fourth.last, lockkeeper.Waiting)
		holders[1].release(holders[1].last)
		fourth.waitGranted(fourth.last)
	}},
	{"T4/case T4.5 released when the code fails", 0, func(w *world) {
		c := w.client("one")
		failed := errors.New("failed")
		w.is(c.Do(w.ctx(), "db", func(context.Context) error { return failed }), failed)
		w.free(exclusive("db"))
		func() {
			defer func() {
				if recover() == nil {
					w.Error("the panic was swallowed")
				}
			}()
			c.Do(w.ctx(), "db", func(context.Context) error { panic("as the test wants") })
		}()
		w.free(exclusive("db"))
	}},
	{"T4/case T4.6 released without holding", 0, func(w *world) {
		h, err := w.client("one").Lock(w.ctx(), "db")
		w.ok(err)
		w.ok(h.Release(w.ctx()))
		w.is(h.Release(w.ctx()), lockkeeper.ErrNotHeld)
		w.ok(h.Close()) // no error, so that defer works
	}},
	{"T4/case T4.9 no duration, holder dead", 0, func(w *world) {
		dead, next := w.renewedPeer("dead", w.shortTTL()), w.peer("next")
		dead.hold(exclusive("db"))
		next.queue(exclusive("db"))
		next.stays(next.last, lockkeeper.Waiting) // as long as the session lives
		dead.dies()
		next.waitGranted(next.last) // only the end of the session frees it
	}},
	{"T4/case T4.10 eight processes, one at a time, in order", fifo | lists, func(w *world) {
		first := w.worker("first", nil)
		h, err := first.lockAs(0)
		w.ok(err)
		var order []int
		var mu sync.Mutex
		var running sync.WaitGroup
		ctx := w.ctx()
		for i := range 8 {
			k := w.worker("process", nil)
			running.Go(func() {
				got, err := k.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
				if err != nil {
					w.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				got.increment("counter")
				<-time.After(time.Duration(9+i%7) * 10 * time.Millisecond)
				if err := got.giveBack(ctx); err != nil {
					w.Error(err)
				}
			})
			w.waiting(i + 1)
		}
		w.ok(h.giveBack(ctx))
		running.Wait()
		for i, k := range order {
			if i != k {
				w.Fatalf("served in the order %v, want that of arrival", order)
			}
		}
	}},
	{"T4/case T4.12 pairs of locks in any order", many, func(w *world) {
		locks := []string{"a", "b", "c"}
		random := rand.New(rand.NewPCG(12, 12))
		var running sync.WaitGroup
		ctx := w.ctx()
		for range 8 {
			k := w.worker("process", nil)
			order := random.Perm(3)
			pair := []lockkeeper.Target{exclusive(locks[order[0]]), exclusive(locks[order[1]])}
			running.Go(func() {
				got, err := k.acquire(ctx, demand{targets: pair}, nil)
				if err != nil {
					w.Error(err)
					return
				}
				for _, t := range pair {
					got.increment(t.Path)
				}
				<-time.After(50 * time.Millisecond)
				if err := got.giveBack(ctx); err != nil {
					w.Error(err)
				}
			})
		}
		running.Wait()
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("a"))
		two.refused(exclusive("b"), exclusive("a"))
		w.free(exclusive("b")) // never half of the pair
	}},
	{"T4/case T4.15 and flaw F4.2 twice within a second", counts, func(w *world) {
		p := w.peer("thread")
		p.hold(permits("device", 1, 3))
		p.inUse(p.hold(permits("device", 1, 3)), 2, 2)
		p.inUse(p.hold(permits("device", 1, 3)), 3, 3) // exactly one unit was free
		p.refused(permits("device", 1, 3))
	}},
	{"T4/case T4.18 and flaw F4.6 another limit", counts, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(permits("device", 2, 2))
		two.inUse(two.hold(permits("device", 1, 5)), 3, 1)
		two.inUse(two.hold(permits("device", 2, 5)), 5, 0)
		one.release(one.last) // with the smaller limit: no error, and no unit is lost
		one.refused(permits("device", 1, 2))
		two.inUse(two.hold(permits("device", 2, 5)), 5, 0)
	}},
	{"T4/case T4.22 without a session", 0, func(w *world) {
		_, err := w.handles[0].Claim(w.ctx(), lockkeeper.Key{Session: "never attached"},
			lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{exclusive("db")}})
		w.is(err, lockkeeper.ErrSession)
		w.free(exclusive("db"))
	}},
	// T4.20 has no check: no cleaner exists that could fail. Leases end by the engine's own
	// deadline.
}

// Flaws F4: known flaws of locks as rows of a database.
var clusterFlaws = []check{
	{"F4/flaw F4.1 and F4.3 units are counted from holders", counts, func(w *world) {
		// Holders die, release and acquire at the same time. No unit may be lost.
		dying := w.peerFor("dying", w.shortTTL())
		dying.hold(permits("k", 1, 3))
		live := w.peer("live")
		live.hold(permits("k", 2, 3))
		next := w.peer("next")
		id := next.queue(permits("k", 3, 3))
		w.sleep(w.shortTTL() - 50*time.Millisecond)
		live.release(live.last)
		next.inUse(next.waitGranted(id), 3, 0)
		next.refused(permits("k", 1, 3))
	}},
	{"F4/flaw F4.5 the holder is told before its lease ends", 0, func(w *world) {
		k, next := w.worker("holder", nil, lockkeeper.SessionTTL(w.shortTTL())), w.worker("next", nil)
		h, err := k.lockAs(0)
		w.ok(err)
		k.link.cut.Store(true)
		got, err := next.lockAs(0)
		w.ok(err)
		if h.Err() == nil {
			w.Error("the former holder has not noticed its loss")
		}
		w.rises(h.Fence(), got.Fence())
		w.ok(got.giveBack(w.ctx()))
	}},
	{"F4/flaw F4.7 all or none under contention", many, func(w *world) {
		paths := []string{"a", "b", "c"}
		w.manyClients(4, 5, nil, func(i, n int) demand {
			return demand{targets: []lockkeeper.Target{exclusive(paths[(i+n)%3]), exclusive(paths[(i+n+1)%3]),
				exclusive(fmt.Sprint("own", i))}}
		})
	}},
	{"F4/flaw F4.9 nobody starves", fifo, func(w *world) {
		p, observer := w.peer("patient"), w.peer("others")
		observer.hold(exclusive("db"))
		id := p.queue(exclusive("db"))
		for range 5 {
			last := observer.last
			observer.queue(exclusive("db"))
			observer.release(last)
			if s := p.status(id); s.State == lockkeeper.Held {
				break
			}
		}
		p.waitGranted(id)
	}},
	{"F4/flaw F4.10 taken again by its holder", 0, func(w *world) {
		c := w.client("one")
		outer, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		inner, err := c.Lock(w.within(outer), "db")
		w.ok(err)
		w.ok(inner.Release(w.ctx()))
		w.peer("other").refused(exclusive("db"))
		w.ok(outer.Release(w.ctx()))
		w.free(exclusive("db"))
	}},
	{"F4/flaw F4.11 an unknown outcome loses nothing", counts, func(w *world) {
		for _, m := range []moment{beforeClaim, afterClaim} {
			k := w.worker("one", func(l *link) { l.lossy = true; l.random.Rand = rand.New(rand.NewPCG(11, uint64(len(m)))) })
			for range 5 {
				h, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{permits("k", 1, 1)}}, nil)
				w.ok(err)
				if err := h.giveBack(w.ctx()); err != nil {
					w.is(err, lockkeeper.ErrUnavailable)
				}
			}
		}
		w.free(permits("k", 1, 1))
	}},
	// F4.2: case T4.15. F4.6: case T4.18. F4.4: no cleaner exists; every engine ends leases by a
	// deadline that it computes itself. F4.8: an engine declares in Guarantees.Survives which
	// failures it survives; Harness.Restart tests it.
}
