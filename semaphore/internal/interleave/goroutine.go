package interleave

import (
	"fmt"
	"iter"
	"runtime/debug"
)

// goroutine is a goroutine of a program, run as a coroutine: one runs at a time, and a switch to it
// and back costs about 120 ns, a quarter of the cost with two channels.
type goroutine struct {
	id    name
	index int // in World.goroutines
	label string
	does  func()
	on    *worker

	ready    bool // it may start
	started  bool
	finished bool
	inside   bool // it has just locked a mutex, at a choice

	steps int       // number of its operations
	op    operation // its next operation
	at    *location

	seen      uint64 // a hash of its knowledge
	named     name   // number of names it has given
	published name   // number of pointees it has named since its last observation
	made      name   // number of goroutines it has made

	read        *location // the location it has just read
	readVersion uint32

	calls  bool // it has made a call that the judge has not recorded yet
	called Event
}

// sees sets the knowledge of g.
func (g *goroutine) sees(seen uint64) { g.seen, g.published = seen, 0 }

// worker is a coroutine that runs one goroutine of each execution.
type worker struct {
	g      *goroutine
	w      *World
	resume func() (struct{}, bool)
	end    func()
	yield  func(struct{}) bool
}

func newWorker() *worker {
	k := &worker{}
	k.resume, k.end = iter.Pull(func(yield func(struct{}) bool) {
		k.yield = yield
		for {
			k.w.body(k.g)
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return k
}

// leave is the panic that ends a goroutine early.
type leave struct{}

// body is the whole life of a goroutine.
func (w *World) body(g *goroutine) {
	defer func() {
		g.finished = true
		if r := recover(); r != nil {
			w.panicked(r)
		}
	}()
	g.started = true
	g.does()
	g.finished = true
	if !w.priming {
		w.next = w.choose(nil)
	}
}

func (w *World) panicked(r any) {
	if _, ok := r.(leave); !ok && w.failure == "" {
		w.failure = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
	}
}

// enabled reports whether g can continue.
func (g *goroutine) enabled() bool {
	switch {
	case g.finished || !g.ready:
		return false
	case !g.started:
		return true
	case g.op == opLock:
		return !g.at.locked
	case g.op == opGosched:
		return g.at.version != g.readVersion
	}
	return true
}

// pause lets the scheduler choose the next goroutine, and returns when g runs again.
func (w *World) pause(g *goroutine) {
	if !w.priming {
		next := w.choose(g)
		if next == g {
			return
		}
		w.next = next
	}
	g.on.yield(struct{}{})
	if w.leaving {
		panic(leave{})
	}
}
