package enginetest

import (
	"math/rand/v2"

	"github.com/lockkeeper/lockkeeper"
)

// slots are resources with perResource slots each: a caller that knows of n resources requests one
// unit with limit n*perResource.
type slots struct {
	*peer
	perResource int
	held        []uint64
}

const full = 0

// acquire takes a slot as a caller that knows of n resources, and checks the ordinal.
func (s *slots) acquire(n, ordinal int) {
	s.Helper()
	got := s.ask(lockkeeper.Want{Targets: []lockkeeper.Target{permits("k", 1, s.perResource*n)}})
	switch {
	case ordinal == full && got.State == lockkeeper.Ended && got.Reason == lockkeeper.TimedOut:
	case ordinal != full && got.State == lockkeeper.Held && got.Grants[0].InUse == ordinal:
		s.held = append(s.held, got.Ref.ID)
	default:
		s.Fatalf("a slot of %d x %d: %s %+v, want ordinal %d (0: full)", s.perResource, n, got.State, got.Grants, ordinal)
	}
}

// giveOne releases the slot that was taken last.
func (s *slots) giveOne() {
	s.Helper()
	last := len(s.held) - 1
	s.release(s.held[last])
	s.held = s.held[:last]
}

func (s *slots) giveAll() {
	s.Helper()
	for len(s.held) > 0 {
		s.giveOne()
	}
}

// Cases T0: thousands of resources with a varying number of slots.
var slotCases = []check{
	{"T0/case T0.1 one caller", counts, func(w *world) {
		s := &slots{peer: w.peer("one"), perResource: 3}
		s.acquire(1, 1)
		s.acquire(1, 2)
		s.acquire(1, 3)
		s.acquire(1, full)
		s.acquire(2, 4)
		s.acquire(1, full)
		s.giveOne()
		s.acquire(1, full)
		s.giveOne()
		s.acquire(1, 3)
		s.acquire(1, full)
	}},
	{"T0/case T0.2 and T0.11g views that differ", counts, func(w *world) {
		s := &slots{peer: w.peer("one"), perResource: 3}
		s.acquire(1, 1) // B
		s.acquire(1, 2) // A
		s.acquire(2, 3) // C
		s.acquire(1, full)
		s.acquire(2, 4) // D
		s.giveAll()
		s.acquire(1, 1) // no slot is lost
	}},
	{"T0/case T0.3 fill and drain", counts, func(w *world) {
		s := &slots{peer: w.peer("one"), perResource: 3}
		for i := range 8 {
			s.acquire(3, i+1)
		}
		extra := s.held[7]
		for left := 7; left >= 0; left-- {
			s.giveOne()
			s.acquire(3, left+1)
			s.giveOne()
		}
		s.release(extra) // a duplicate frees nothing
		w.is(s.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1 << 40}), lockkeeper.ErrNotHeld)
		for i := range 9 {
			s.acquire(3, i+1)
		}
		s.acquire(3, full)
	}},
	{"T0/case T0.5 more resources", counts, func(w *world) {
		s := &slots{peer: w.peer("one"), perResource: 5}
		for i := range 5 {
			s.acquire(1, i+1)
		}
		s.acquire(2, 6)
		s.giveOne()
		s.acquire(1, full)
		s.acquire(2, 6)
	}},
	{"T0/case T0.8 a worker dies", counts, func(w *world) {
		dying := &slots{peer: w.renewedPeer("dying", w.shortTTL()), perResource: 5}
		dying.acquire(1, 1)
		workers := &slots{peer: w.peer("workers"), perResource: 5}
		for i := range 4 {
			workers.acquire(1, i+2)
		}
		workers.acquire(2, 6)
		id := workers.queue(permits("k", 1, 6)) // until the worker's lease ends
		dying.dies()
		s := workers.waitGranted(id)
		workers.inUse(s, 6, 1)
		workers.release(id)
		workers.acquire(1, full)
		workers.acquire(2, 6)
	}},
	{"T0/case T0.9 exactly as many as there are", counts, func(w *world) {
		random := rand.New(rand.NewPCG(9, 9)) // the same cases every time
		cases := 100
		if !w.harness.Bubble {
			cases = 6 // hundreds of requests each
		}
		for range cases {
			s := &slots{peer: w.peer("one"), perResource: 2 + random.IntN(18)}
			n := 2 + random.IntN(8)
			for i := range s.perResource * n {
				s.acquire(n, i+1)
			}
			s.acquire(n, full)
			s.giveAll()
			s.acquire(n, 1)
			s.leave()
		}
	}},
	{"T0/case T0.11a who holds nothing frees nothing", counts, func(w *world) {
		holder, q := w.peer("P"), w.peer("Q")
		holder.hold(permits("k", 1, 1))
		w.is(q.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}), lockkeeper.ErrNotHeld)
		q.refused(permits("k", 1, 1))
	}},
	{"T0/case T0.11d holders of another view die", counts, func(w *world) {
		dying := &slots{peer: w.renewedPeer("dying", w.shortTTL()), perResource: 3}
		for i := range 3 {
			dying.acquire(1, i+1)
		}
		next := &slots{peer: w.peer("next"), perResource: 3}
		next.acquire(1, full)
		dying.dies()
		all := w.peer("all")
		all.waitGranted(all.queue(permits("k", 3, 3))) // all three are free
		all.leave()
		for i := range 3 {
			next.acquire(1, i+1)
		}
	}},
	{"T0/case T0.11f refused attempts leave no trace", counts, func(w *world) {
		s := &slots{peer: w.peer("one"), perResource: 1}
		s.acquire(1, 1)
		attempts := 1000
		if !w.harness.Bubble {
			attempts = 100
		}
		for range attempts {
			s.acquire(1, full)
		}
		s.acquire(2, 2)
		s.giveAll()
		s.acquire(1, 1)
	}},
}

// Cases T1: readers and writers of one website.
var readWriteCases = []check{
	{"T1/case T1.19 hard writers", shares | fifo, func(w *world) {
		var readers []*peer
		for range 3 {
			p := w.peer("reader")
			p.hold(shared("site"))
			readers = append(readers, p)
		}
		writer, fourth := w.peer("writer"), w.peer("fourth reader")
		writer.queue(exclusive("site"))
		fourth.queue(shared("site"))
		for _, p := range readers {
			fourth.stays(fourth.last, lockkeeper.Waiting)
			p.release(p.last)
		}
		writer.waitGranted(writer.last)
		fourth.stays(fourth.last, lockkeeper.Waiting)
		writer.release(writer.last)
		fourth.waitGranted(fourth.last)
	}},
	{"T1/case T1.19 a writer that gives up", shares | fifo, func(w *world) {
		reader, writer, late := w.peer("reader"), w.peer("writer"), w.peer("late reader")
		reader.hold(shared("site"))
		const bound = lockkeeper.MinTTL
		sent := w.now()
		writer.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("site")}, Wait: bound})
		late.queue(shared("site"))
		late.waitGranted(late.last)
		w.between("the writer gave up", w.now()-sent, bound, bound)
		writer.waitEnded(writer.last, lockkeeper.TimedOut)
		late.hold(shared("site"))
	}},
}
