package interleave

import (
	"fmt"
	"iter"
	"runtime/debug"
)

// goroutine is one of a program. It is a coroutine, so switching to it and back
// costs about 120 ns, a quarter of what two channels cost, and there is never more
// than one that runs.
type goroutine struct {
	id    name
	index int // in World.goroutines
	label string
	does  func()
	on    *worker

	ready    bool // it may start
	started  bool
	finished bool
	inside   bool // it has just locked a mutex, at a turn of its own

	steps int       // how many operations it has done
	op    operation // what it does when it has its turn again
	at    *location

	seen      uint64 // the hash of what it knows: what it has observed in its call, and what it knew before
	named     name   // how many names it has given
	published name   // how many of them were of what pointers point to, since it has seen something
	made      name   // how many goroutines it has made

	read        *location // what it read last, if it has done nothing since
	readVersion uint32

	calls  bool // it has made a call that the judge does not know of yet
	called Event
}

// sees changes what g knows.
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

// leave is the panic by which a goroutine ends early.
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

// enabled reports whether g can go on now.
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

// stand lets the scheduler decide who goes on, and returns when g does.
func (w *World) stand(g *goroutine) {
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
