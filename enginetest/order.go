package enginetest

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

const (
	fifo        = lockkeeper.FeatureFIFO
	shares      = lockkeeper.FeatureShared
	counts      = lockkeeper.FeaturePermits
	trees       = lockkeeper.FeatureHierarchy
	many        = lockkeeper.FeatureManyTargets
	ranked      = lockkeeper.FeaturePriority
	steals      = lockkeeper.FeatureSteal
	softWriters = lockkeeper.FeatureWriterPolicy
	amends      = lockkeeper.FeatureAmend
	deadlocks   = lockkeeper.FeatureDeadlock
	maxHold     = lockkeeper.FeatureLongestHold
	lists       = lockkeeper.FeatureList
	revokes     = lockkeeper.FeatureRevoke
	freezes     = lockkeeper.FeatureFreeze
	fences      = lockkeeper.FeatureFences
	once        = lockkeeper.FeatureOnce
	estimates   = lockkeeper.FeatureEstimate
	measured    = lockkeeper.FeatureMeasuredSteal
)

// R4 and R5: the order of the queue, and claims that need not wait.
var orderChecks = []check{
	{"R4/first come first served", fifo, func(w *world) {
		holder := w.peer("holder")
		holder.hold(exclusive("db"))
		var queue []*peer
		for range 6 {
			p := w.peer("waiter")
			p.queue(exclusive("db"))
			queue = append(queue, p)
		}
		before := holder.last
		holder.release(before)
		fence := uint64(0)
		for i, p := range queue {
			s := p.waitGranted(p.last)
			w.rises(fence, s.Fence)
			fence = s.Fence
			for _, other := range queue[i+1:] {
				if s := other.status(other.last); s.State != lockkeeper.Waiting {
					w.Fatalf("a later waiter is %s while %d holds", s.State, i)
				}
			}
			p.release(p.last)
		}
	}},
	{"R4/priority first, then the ticket", fifo | ranked, func(w *world) {
		holder := w.peer("holder")
		holder.hold(exclusive("db"))
		queue := map[string]*peer{}
		for _, c := range []struct {
			name     string
			priority int
		}{{"low", -7}, {"zero", 0}, {"five", 5}, {"one", 1}, {"five again", 5}, {"top", lockkeeper.MaxPriority}} {
			p := w.peer(c.name)
			p.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever, Priority: c.priority})
			queue[c.name] = p
		}
		holder.release(holder.last)
		for _, name := range []string{"top", "five", "five again", "one", "zero", "low"} {
			p := queue[name]
			p.waitGranted(p.last)
			p.release(p.last)
		}
	}},
	{"R4/places are told", fifo | lists, func(w *world) {
		holder := w.peer("holder")
		holder.hold(exclusive("db"))
		var waits []lockkeeper.Ref
		for range 3 {
			p := w.peer("waiter")
			p.queue(exclusive("db"))
			waits = append(waits, p.ref(p.last))
		}
		for i, ref := range waits {
			if all := holder.list(lockkeeper.Query{Ref: ref}); len(all) != 1 || all[0].Position != i+1 {
				w.Errorf("waiter %d: %+v, want position %d", i, all, i+1)
			}
		}
	}},
	{"R5/no reader slips past a waiting writer", fifo | shares, func(w *world) {
		reader, writer, late := w.peer("reader"), w.peer("writer"), w.peer("late reader")
		reader.hold(shared("db"))
		writer.queue(exclusive("db"))
		late.refused(shared("db"))
		late.queue(shared("db"))
		reader.release(reader.last)
		writer.waitGranted(writer.last)
		late.stays(late.last, lockkeeper.Waiting)
		writer.release(writer.last)
		late.waitGranted(late.last)
	}},
	{"R5/readers go together", fifo | shares, func(w *world) {
		writer, next := w.peer("writer"), w.peer("next writer")
		writer.hold(exclusive("db"))
		var readers []*peer
		for range 5 {
			p := w.peer("reader")
			p.queue(shared("db"))
			readers = append(readers, p)
		}
		next.queue(exclusive("db"))
		writer.release(writer.last)
		for _, p := range readers {
			p.waitGranted(p.last)
		}
		next.stays(next.last, lockkeeper.Waiting)
		for _, p := range readers {
			p.release(p.last)
		}
		next.waitGranted(next.last)
	}},
	{"R5/a writer is not starved by readers", fifo | shares, func(w *world) {
		readers := []*peer{w.peer("reader"), w.peer("reader"), w.peer("reader")}
		for _, p := range readers {
			p.hold(shared("db"))
		}
		writer := w.peer("writer")
		writer.queue(exclusive("db"))
		for _, p := range readers { // each waits again before the next one releases
			p.release(p.last)
			p.queue(shared("db"))
		}
		writer.waitGranted(writer.last)
		writer.release(writer.last)
		for _, p := range readers {
			p.waitGranted(p.last)
		}
	}},
	{"R5/who is not in the way is not waited for", fifo | trees, func(w *world) {
		a, b, whole, c := w.peer("a"), w.peer("b"), w.peer("whole"), w.peer("c")
		a.hold(exclusive("db/1"))
		whole.queue(exclusive("db"))
		b.refused(exclusive("db/2")) // behind the claim of the whole
		c.hold(exclusive("other/2"))
		a.release(a.last)
		whole.waitGranted(whole.last)
	}},
	{"R5/cancelling lets those behind go", fifo | shares, func(w *world) {
		reader, writer, late := w.peer("reader"), w.peer("writer"), w.peer("late reader")
		reader.hold(shared("db"))
		writer.queue(exclusive("db"))
		late.queue(shared("db"))
		writer.release(writer.last)
		late.waitGranted(late.last)
		writer.waitEnded(writer.last, lockkeeper.Cancelled)
	}},
	{"R4/a raised priority overtakes", fifo | ranked | amends, func(w *world) {
		holder, first, second := w.peer("holder"), w.peer("first"), w.peer("second")
		holder.hold(exclusive("db"))
		first.queue(exclusive("db"))
		second.queue(exclusive("db"))
		raised := second.wants[second.last]
		raised.Priority, raised.Revision = 3, 1
		if s := second.ask(raised); s.State != lockkeeper.Waiting || s.Priority != 3 || s.Revision != 1 {
			w.Fatalf("raised: %+v", s)
		}
		holder.release(holder.last)
		second.waitGranted(second.last)
		first.stays(first.last, lockkeeper.Waiting)
	}},
}

// R6: many targets in one claim.
var manyChecks = []check{
	{"R6/whole or not at all", many, func(w *world) {
		one, two, three := w.peer("one"), w.peer("two"), w.peer("three")
		one.hold(exclusive("b"))
		two.refused(exclusive("a"), exclusive("b"), exclusive("c"))
		three.hold(exclusive("a"))
		three.hold(exclusive("c"))
		three.leave()
		two.queue(exclusive("c"), exclusive("b"), exclusive("a"))
		one.release(one.last)
		s := two.waitGranted(two.last)
		if len(s.Grants) != 3 || !slices.ContainsFunc(s.Grants, func(g lockkeeper.Grant) bool { return g.Path == "a" }) {
			w.Errorf("granted %+v, want all three", s.Grants)
		}
		w.peer("four").refused(exclusive("a"))
	}},
	{"R6/it keeps its place in every line", many | fifo, func(w *world) {
		one, both, late := w.peer("one"), w.peer("both"), w.peer("late")
		one.hold(exclusive("a"))
		both.queue(exclusive("a"), exclusive("b"))
		late.queue(exclusive("b")) // b is free but reserved
		late.stays(late.last, lockkeeper.Waiting)
		one.release(one.last)
		both.waitGranted(both.last)
		both.release(both.last)
		late.waitGranted(late.last)
	}},
	{"R6/opposite orders do not deadlock", many | fifo, func(w *world) {
		holder := w.peer("holder")
		holder.hold(exclusive("a"), exclusive("b"))
		one, two := w.peer("one"), w.peer("two")
		one.queue(exclusive("a"), exclusive("b"))
		two.queue(exclusive("b"), exclusive("a"))
		holder.release(holder.last)
		one.waitGranted(one.last)
		one.release(one.last)
		two.waitGranted(two.last)
	}},
	{"R6/mixed modes over trees", many | shares | counts | trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db/1"), shared("site"), permits("router/snmp", 2, 3))
		two.refused(exclusive("db"))
		two.refused(exclusive("site/x"))
		two.refused(permits("router/snmp", 2, 3))
		two.hold(shared("db/2"), shared("site/x"), permits("router/snmp", 1, 3))
		two.leave()
		one.release(one.last)
		two = w.peer("three")
		two.hold(exclusive("db"), exclusive("site"), permits("router/snmp", 3, 3))
	}},
	{"R6/as many as are allowed", many, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		var targets []lockkeeper.Target
		for i := range lockkeeper.MaxTargets {
			targets = append(targets, exclusive(fmt.Sprint("t", i)))
		}
		one.hold(targets...)
		for _, t := range targets {
			two.refused(t)
		}
		one.release(one.last)
		slices.Reverse(targets)
		two.hold(targets...)
	}},
}
