package enginetest

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// inUse fails the check unless the claim holds units and reports the given count.
func (p *peer) inUse(s lockkeeper.Status, want, slot int) {
	p.Helper()
	if len(s.Grants) == 0 || s.Grants[0].InUse != want || s.Grants[0].Slot != slot {
		p.Fatalf("granted %+v, want %d in use and slot %d", s.Grants, want, slot)
	}
}

// R7: each caller brings its own limit.
var permitChecks = []check{
	{"R7/up to the limit", counts, func(w *world) {
		p := w.peer("one")
		var ids []uint64
		for i := range 3 {
			p.inUse(p.hold(permits("k", 1, 3)), i+1, i+1)
			ids = append(ids, p.last)
		}
		p.refused(permits("k", 1, 3))
		p.release(ids[1])
		p.inUse(p.hold(permits("k", 1, 3)), 3, 2) // the lowest free slot
		p.refused(permits("k", 1, 3))
	}},
	{"R7/several units", counts, func(w *world) {
		p := w.peer("one")
		p.inUse(p.hold(permits("k", 3, 5)), 3, 0)
		p.refused(permits("k", 3, 5))
		p.inUse(p.hold(permits("k", 2, 5)), 5, 0)
		p.refused(permits("k", 1, 5))
		p.inUse(p.hold(permits("k", 1, 6)), 6, 1)
	}},
	{"R7/each by its own limit", counts, func(w *world) {
		small, large := w.peer("small"), w.peer("large")
		small.hold(permits("k", 1, 1))
		small.refused(permits("k", 1, 1))
		large.inUse(large.hold(permits("k", 1, 3)), 2, 2)
		large.inUse(large.hold(permits("k", 1, 3)), 3, 3)
		large.refused(permits("k", 1, 3))
		small.leave()
		small = w.peer("small again")
		small.refused(permits("k", 1, 1)) // more units are held than its limit
		large.leave()
		small.inUse(small.hold(permits("k", 1, 1)), 1, 1)
	}},
	{"R7/a smaller view holds back no larger one", counts | fifo, func(w *world) {
		holder, small, large := w.peer("holder"), w.peer("small"), w.peer("large")
		holder.hold(permits("k", 2, 2))
		small.queue(permits("k", 1, 2))
		large.inUse(large.hold(permits("k", 1, 3)), 3, 1)
		if s := small.explain(small.last); w.claims(lists) && !slices.Contains(s.Waits, lockkeeper.OwnLimit) {
			w.Errorf("it waits for %v, want its own limit among it", s.Waits)
		}
		holder.release(holder.last)
		small.waitGranted(small.last)
	}},
	{"R7/a larger view waits ahead and is counted", counts | fifo, func(w *world) {
		holder, large, small := w.peer("holder"), w.peer("large"), w.peer("small")
		holder.hold(permits("k", 2, 4))
		large.queue(permits("k", 3, 4))
		small.refused(permits("k", 1, 4)) // it would fit alone, but not together with the claim ahead
		small.refused(permits("k", 1, 3))
		small.hold(permits("k", 1, 9)) // only claims ahead with at least its own limit count against it
		small.release(small.last)
		holder.release(holder.last)
		large.waitGranted(large.last)
	}},
	{"R7/growth is felt at once", counts | amends, func(w *world) {
		holder, p := w.peer("holder"), w.peer("grower")
		holder.hold(permits("k", 2, 2))
		id := p.queue(permits("k", 1, 2))
		grown := p.wants[id]
		grown.Targets = []lockkeeper.Target{permits("k", 1, 3)}
		grown.Revision = 1
		if s := p.ask(grown); s.State != lockkeeper.Held {
			w.Fatalf("grown: %s, want held at once", s.State)
		}
		p.inUse(p.status(id), 3, 1)
	}},
	{"R7/a limit below its units is refused", counts | amends, func(w *world) {
		holder, p := w.peer("holder"), w.peer("shrinker")
		holder.hold(permits("k", 3, 3))
		id := p.queue(permits("k", 2, 3))
		shrunk := p.wants[id]
		shrunk.Targets, shrunk.Revision = []lockkeeper.Target{permits("k", 2, 1)}, 1
		_, err := p.engine.Claim(w.ctx(), p.key, shrunk)
		w.is(err, lockkeeper.ErrInvalid)
		p.stays(id, lockkeeper.Waiting)
	}},
	{"R7/waiting permits share what is freed", counts | fifo, func(w *world) {
		holder := w.peer("holder")
		holder.hold(permits("k", 3, 3))
		var queue []*peer
		for range 4 {
			p := w.peer("waiter")
			p.queue(permits("k", 1, 3))
			queue = append(queue, p)
		}
		holder.release(holder.last)
		for i, p := range queue[:3] {
			p.inUse(p.waitGranted(p.last), i+1, i+1)
		}
		queue[3].stays(queue[3].last, lockkeeper.Waiting)
		queue[1].release(queue[1].last)
		queue[3].inUse(queue[3].waitGranted(queue[3].last), 3, 2)
	}},
	{"R7/no units of nobody", counts, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(permits("k", 1, 1))
		w.is(two.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: one.last}), lockkeeper.ErrNotHeld)
		two.refused(permits("k", 1, 1))
		one.release(one.last)
		one.release(one.last) // a duplicate frees nothing
		two.hold(permits("k", 1, 1))
		one.refused(permits("k", 1, 1))
	}},
}
