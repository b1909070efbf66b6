package interleave

import (
	"fmt"
	"unsafe"
)

// World is one execution of a program: its goroutines, and the locations they meet at.
type World struct {
	x          *explorer
	epoch      uint32
	goroutines []*goroutine
	running    *goroutine // nil while the program is set up, and when all has ended
	next       *goroutine // who runs when the running one yields; nil: nobody
	priming    bool       // goroutines run up to their first turn
	leaving    bool       // goroutines end wherever they are

	named    name // how many names were given by the set-up
	sharing  name // if not 0, the last name given by Share, which goes on
	pointees map[unsafe.Pointer]pointee
	sum      uint64 // of the parts of all locations
	steps    int
	passed   schedule // who ran, for how many operations
	switches int      // how often one who could go on did not
	depth    int      // how many choices were made
	lonely   bool     // at the last of them there was only one

	ended   bool
	final   uint64 // the memory then
	failure string

	hashes   map[any]uint64
	dying    map[unsafe.Pointer]*lastUse
	cleanups map[unsafe.Pointer]*goroutine
	told     *story
}

// world is the execution that goes on; there is one at a time.
var world *World

const (
	mostGoroutines = 16    // of a mask
	mostSteps      = 5_000 // more than any program of a test takes
)

// Go adds a goroutine to the program.
func (w *World) Go(label string, does func()) { w.later(label, does).ready = true }

// later adds a goroutine that does not start before it is ready.
func (w *World) later(label string, does func()) *goroutine {
	if len(w.goroutines) == mostGoroutines {
		w.fail("more than %d goroutines", mostGoroutines)
	}
	id := name(len(w.goroutines) + 1)
	if by := w.running; by != nil {
		by.made++
		id = by.id<<4 | by.made
	}
	g := &goroutine{id: id, index: len(w.goroutines), label: label, does: does}
	if by := w.running; by != nil {
		g.seen = mix(by.seen, uint64(by.made))
	}
	g.on = w.x.worker(g.index)
	g.on.g, g.on.w = g, w
	w.goroutines = append(w.goroutines, g)
	return g
}

// fail ends the execution: it has shown that something is wrong.
func (w *World) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
	panic(leave{})
}

// turn is called before an operation on l, and returns when it is to be done.
//
// It has no turn of its own, but happens together with the operation before it,
// if nobody could tell the difference: see the package's documentation.
func (l *location) turn(op operation) {
	w := world
	if w == nil {
		panic("interleave: used outside of an exploration")
	}
	w.know(l)
	g := w.running
	if g == nil {
		return
	}
	if w.leaving {
		panic(leave{})
	}
	if !w.x.everyTurn {
		if op == opUnlock {
			g.inside = false
		}
		if op == opUnlock || !l.class.met {
			return
		}
		if g.inside && op != opLock {
			g.inside = false
			return
		}
		g.inside = op == opLock
	}
	g.op, g.at = op, l
	w.stand(g)
	if f := w.x.follow; g.calls && (f == nil && l.class.met || f != nil && f.begins) {
		w.note(g)
	}
}

// done is called after an operation, with what it has left in the location, what
// it has returned, and what it was given.
func (l *location) done(op operation, wrote bool, value, result, a, b uint64) {
	w := world
	w.keyOf(l)
	if wrote {
		l.version++
		part := uint64(0)
		if value != 0 {
			part = mix(uint64(l.key), value)
		}
		w.sum += part - l.part
		l.part = part
	}
	g := w.running
	if g == nil {
		return
	}
	w.uses(g, l, wrote)
	g.read = nil
	if op == opLoad {
		g.read, g.readVersion = l, l.version
	}
	g.sees(mix(g.seen, mix(uint64(l.key)+uint64(op), result)))
	w.count(g)
	if w.told != nil {
		w.told.operation(g, op, result, a, b)
	}
}

// uses notes that g uses a location, and whether it changes it.
func (w *World) uses(g *goroutine, l *location, change bool) {
	l.class.used(g.id, change)
	if l.class.isMet() && !l.class.met {
		w.x.surprised = true
	}
}

// count notes that g has done one operation.
func (w *World) count(g *goroutine) {
	w.passed = w.passed.more(g.index)
	g.steps++
	if w.steps++; w.steps > mostSteps {
		w.fail("it does not end: %d operations up to now", w.steps)
	}
}

// gosched waits until somebody has changed what the running goroutine has just
// read: a look before that would show the same, and come here again.
func (w *World) gosched() {
	g := w.running
	if g == nil {
		w.fail("waits for others where there are none")
	}
	if w.leaving {
		panic(leave{})
	}
	if g.read == nil {
		w.fail("Gosched, and not right after a look at an atomic value: what is waited for?")
	}
	g.op, g.at = opGosched, g.read
	g.inside = false
	w.stand(g)
	g.read = nil
	g.sees(mix(g.seen, uint64(opGosched)))
	w.count(g)
	if w.told != nil {
		w.told.operation(g, opGosched, 0, 0, 0)
	}
}

// choose decides who goes on; by is who stands now. It returns nil if nobody
// does: when all have ended, or something is wrong, or all that could follow is
// known already.
func (w *World) choose(by *goroutine) *goroutine {
	if w.failure != "" {
		return nil
	}
	var can mask
	for _, g := range w.goroutines {
		if g.enabled() {
			can |= 1 << g.index
		}
	}
	if can == 0 {
		w.stop()
		return nil
	}
	return w.x.pick(w, can, by)
}

// stop looks whether all have ended when nobody can go on.
func (w *World) stop() {
	for _, g := range w.goroutines {
		if g.ready && !g.finished {
			w.failure = fmt.Sprintf("deadlock: nobody can go on, and %c waits", 'A'+g.index)
			return
		}
	}
	w.ended, w.final = true, w.memory()
}

// state is a hash of all that decides how it can go on, and how that is judged.
func (w *World) state() uint64 { return mix(w.memory(), w.x.judge.State()) }

// memory is a hash of all that the goroutines know, and of all locations.
func (w *World) memory() uint64 {
	h := w.sum
	for _, g := range w.goroutines {
		seen := g.seen
		if g.op == opGosched && !g.finished && g.enabled() {
			seen++
		}
		h += mix(uint64(g.id)|1<<40, seen)
	}
	return h
}
