package enginetest

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// R8: no wait, a bounded wait, or a wait without limit.
var waitChecks = []check{
	{"R8/a try never waits and leaves nothing", 0, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db"))
		s := two.refused(exclusive("db"))
		if len(s.Blockers) == 0 || s.Blockers[0].Ref != one.ref(one.last) {
			w.Errorf("refused without saying who has it: %+v", s.Blockers)
		}
		one.release(one.last)
		two.stays(two.last, lockkeeper.Ended) // never granted later
		w.free(exclusive("db"))
	}},
	{"R8/a bounded wait ends at its bound", 0, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db"))
		sent := w.now()
		const bound = 300 * time.Millisecond
		id := two.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: bound})
		two.waitEnded(id, lockkeeper.TimedOut)
		w.between("the wait ended", w.now()-sent, bound, bound)
		one.release(one.last)
		two.stays(id, lockkeeper.Ended)
		w.free(exclusive("db"))
	}},
	{"R8/the bound covers the wait only", 0, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db"))
		const bound = 2 * time.Second
		id := two.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: bound})
		one.release(one.last)
		two.waitGranted(id)
		w.sleep(bound + 100*time.Millisecond)
		two.stays(id, lockkeeper.Held)
	}},
	{"R8/who gives up is in nobody's way", fifo | shares, func(w *world) {
		reader, writer, late := w.peer("reader"), w.peer("writer"), w.peer("late reader")
		reader.hold(shared("db"))
		writer.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: 300 * time.Millisecond})
		late.waitGranted(late.request(lockkeeper.Want{Targets: []lockkeeper.Target{shared("db")}, Wait: forever}))
	}},
	{"R8/a wait that is outlasted fails at once", 0, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Expected: time.Hour})
		s := two.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: time.Minute})
		if s.State != lockkeeper.Ended || s.Reason != lockkeeper.TimedOut {
			w.Fatalf("a wait of a minute for a hold of an hour: %s (%s), want it to fail at once", s.State, s.Reason)
		}
		two.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: 2 * time.Hour})
		two.queue(exclusive("db"))
	}},
	{"R8/a wait that a freeze outlasts fails at once", freezes | lists, func(w *world) {
		op, p := w.peer("operator"), w.peer("one")
		op.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Freeze: time.Hour})
		s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: time.Minute})
		if s.State != lockkeeper.Ended || s.Reason != lockkeeper.TimedOut {
			w.Fatalf("a wait of a minute under a freeze of an hour: %s (%s), want it to fail at once", s.State, s.Reason)
		}
		id := p.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: 2 * time.Hour})
		if s := p.explain(id); !slices.Contains(s.Waits, lockkeeper.Frozen) {
			w.Errorf("it waits for %v, want frozen among it", s.Waits)
		}
	}},
}

func soft(quiet time.Duration, path string) lockkeeper.Want {
	return lockkeeper.Want{
		Targets:      []lockkeeper.Target{exclusive(path)},
		Wait:         forever,
		WriterPolicy: lockkeeper.Soft,
		Quiet:        quiet,
	}
}

// R9: soft writers.
var softChecks = []check{
	{"R9/a hard writer holds back readers, a soft one does not", softWriters | shares | fifo, func(w *world) {
		reader, writer, late := w.peer("reader"), w.peer("soft writer"), w.peer("late reader")
		reader.hold(shared("db"))
		writer.queueAs(soft(0, "db"))
		late.hold(shared("db"))
		reader.release(reader.last)
		writer.stays(writer.last, lockkeeper.Waiting)
		late.release(late.last)
		writer.waitGranted(writer.last)
	}},
	{"R9/soft goes after hard, whichever came first", softWriters | fifo | ranked, func(w *world) {
		holder, gentle, hard := w.peer("holder"), w.peer("soft"), w.peer("hard")
		holder.hold(exclusive("db"))
		want := soft(0, "db")
		want.Priority = 5
		gentle.queueAs(want)
		hard.queue(exclusive("db"))
		holder.release(holder.last)
		hard.waitGranted(hard.last)
		gentle.stays(gentle.last, lockkeeper.Waiting)
		hard.release(hard.last)
		gentle.waitGranted(gentle.last)
	}},
	{"R9/the quiet period runs from the last hold", softWriters | shares, func(w *world) {
		reader, writer := w.peer("reader"), w.peer("soft writer")
		const quiet = 2 * time.Second // time enough to interrupt it
		reader.hold(shared("db"))
		id := writer.queueAs(soft(quiet, "db"))
		reader.release(reader.last)
		reader.hold(shared("db")) // interrupts the quiet time
		ended := w.now()
		reader.release(reader.last)
		if s := writer.explain(id); w.claims(lists) && s.State == lockkeeper.Waiting &&
			!slices.Equal(s.Waits, []lockkeeper.WaitReason{lockkeeper.QuietPeriod}) {
			w.Errorf("it waits for %v, want the quiet period", s.Waits)
		}
		writer.waitGranted(id)
		w.between("granted", w.now()-ended, quiet, quiet)
	}},
	{"R9/the quiet period runs from its own arrival", softWriters, func(w *world) {
		p := w.peer("soft writer")
		const quiet = 300 * time.Millisecond
		began := w.now()
		p.waitGranted(p.request(soft(quiet, "db")))
		w.between("granted", w.now()-began, quiet, quiet)
	}},
	{"R9/the refused leave no trace", softWriters | shares | many, func(w *world) {
		reader, writer, trier := w.peer("reader"), w.peer("soft writer"), w.peer("trier")
		const quiet = 500 * time.Millisecond
		reader.hold(shared("db"))
		id := writer.queueAs(soft(quiet, "db"))
		ended := w.now()
		reader.release(reader.last)
		w.sleep(quiet / 2)
		trier.hold(exclusive("other"))
		reader.refused(exclusive("db"), exclusive("other"))
		cancelled := reader.queue(exclusive("db"), exclusive("other"))
		reader.release(cancelled)
		writer.waitGranted(id)
		w.between("granted", w.now()-ended, quiet, quiet)
	}},
}
