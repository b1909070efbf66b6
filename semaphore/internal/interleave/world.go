package interleave

import (
	"fmt"
	"unsafe"
)

// World is one execution of a program: its goroutines and the locations that they share.
type World struct {
	x          *explorer
	epoch      uint32
	goroutines []*goroutine
	running    *goroutine // nil during the setup and after the end
	next       *goroutine // runs when the running goroutine pauses; nil: none
	priming    bool       // goroutines run up to their first choice
	leaving    bool       // goroutines end at their next operation

	named    name // number of names given by the setup
	sharing  name // the last name given by the current Share; 0: none
	pointees map[unsafe.Pointer]pointee
	sum      uint64 // of the parts of all locations
	steps    int
	ran      schedule // the schedule so far
	switches int      // how often an enabled goroutine was preempted
	depth    int      // number of choices
	single   bool     // the last choice had one option

	ended   bool
	final   uint64 // the memory at the end
	failure string

	hashes   map[any]uint64
	dying    map[unsafe.Pointer]*lastUse
	cleanups map[unsafe.Pointer]*goroutine
	story    *story
}

// world is the current execution; there is one at a time.
var world *World

const (
	maxGoroutines = 16    // bits of a mask
	maxSteps      = 5_000 // more than any program needs
)

// Go adds a goroutine to the program.
func (w *World) Go(label string, does func()) { w.later(label, does).ready = true }

// later adds a goroutine that waits until it is ready.
func (w *World) later(label string, does func()) *goroutine {
	if len(w.goroutines) == maxGoroutines {
		w.fail("more than %d goroutines", maxGoroutines)
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

// fail ends the execution with a failure.
func (w *World) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
	panic(leave{})
}

// turn is called before an operation on l, and returns when the scheduler has chosen the goroutine.
// The reductions of the package documentation let some operations happen without a choice.
func (l *location) turn(op operation) {
	w := world
	if w == nil {
		panic("interleave: used outside of an exploration")
	}
	w.register(l)
	g := w.running
	if g == nil {
		return
	}
	if w.leaving {
		panic(leave{})
	}
	if !w.x.everyChoice {
		if op == opUnlock {
			g.inside = false
		}
		if op == opUnlock || !l.class.visible {
			return
		}
		if g.inside && op != opLock {
			g.inside = false
			return
		}
		g.inside = op == opLock
	}
	g.op, g.at = op, l
	w.pause(g)
	if f := w.x.follow; g.calls && (f == nil && l.class.visible || f != nil && f.begins) {
		w.note(g)
	}
}

// done is called after an operation, with the value of the location, the result and the arguments.
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
	if w.story != nil {
		w.story.operation(g, op, result, a, b)
	}
}

// uses records that g uses a location, and whether g changes it.
func (w *World) uses(g *goroutine, l *location, change bool) {
	l.class.used(g.id, change)
	if l.class.isVisible() && !l.class.visible {
		w.x.outdated = true
	}
}

// count counts one operation of g.
func (w *World) count(g *goroutine) {
	w.ran = w.ran.more(g.index)
	g.steps++
	if w.steps++; w.steps > maxSteps {
		w.fail("it does not end: %d operations so far", w.steps)
	}
}

// gosched waits until another goroutine changes the value that the running goroutine has just read.
// Before that a second read would return the same value, and the goroutine would call Gosched
// again.
func (w *World) gosched() {
	g := w.running
	if g == nil {
		w.fail("Gosched during the setup")
	}
	if w.leaving {
		panic(leave{})
	}
	if g.read == nil {
		w.fail("Gosched without a Load right before it: the explorer cannot know which value it waits for")
	}
	g.op, g.at = opGosched, g.read
	g.inside = false
	w.pause(g)
	g.read = nil
	g.sees(mix(g.seen, uint64(opGosched)))
	w.count(g)
	if w.story != nil {
		w.story.operation(g, opGosched, 0, 0, 0)
	}
}

// choose returns the goroutine that runs next; by is the one that pauses. It returns nil if all
// goroutines have ended, after a failure, and in a visited state.
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

// stop ends the execution when no goroutine is enabled. The execution fails if one has not ended.
func (w *World) stop() {
	for _, g := range w.goroutines {
		if g.ready && !g.finished {
			w.failure = fmt.Sprintf("deadlock: no goroutine can continue, and %c waits", 'A'+g.index)
			return
		}
	}
	w.ended, w.final = true, w.memory()
}

// state returns a hash of everything that decides the continuation and its judgement.
func (w *World) state() uint64 { return mix(w.memory(), w.x.judge.State()) }

// memory returns a hash of the knowledge of all goroutines and of all locations.
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
