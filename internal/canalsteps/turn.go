package canalsteps

import "fmt"

// pc is the number of a step, which is named after the function of canal it is in.
type pc uint8

// step is what happens when a worker has its turn there. It does at most one thing
// that others could see or that depends on them, and leads to the next step.
type step struct {
	name string
	run  func(*turn)
	// glue is no step of its own, but what a worker does with its own variables
	// on its way from one step to the next. It belongs to the step before it.
	glue bool
}

// algorithm is a set of steps: canal's, or with some exchanged.
type algorithm [pcs]step

// turn is one worker's doing of one step.
type turn struct {
	*scope
	steps   *algorithm
	s       *shared
	w       *worker
	workers *[mostWorkers]worker
	me      uint8 // the worker, from 1
	waits   bool  // it can't go on before somebody else does
	fault   fault // what went wrong, if anything
	tell    *[]string
	taken   [pcs]int // how often each step was done
}

// step lets a worker do its next step in st. It returns false, with st as it was,
// if the worker has to wait.
func (t *turn) step(st *state, worker int) bool {
	t.s, t.w, t.workers = &st.shared, &st.workers[worker], &st.workers
	t.me, t.waits = uint8(worker)+1, false
	at := t.w.at
	t.steps[at].run(t)
	if t.waits {
		return false
	}
	t.taken[at]++
	for t.steps[t.w.at].glue {
		t.taken[t.w.at]++
		t.steps[t.w.at].run(t)
	}
	t.sweep()
	return true
}

func (t *turn) to(next pc) { t.w.at = next }

// enter goes into a function that returns to back.
func (t *turn) enter(function, back pc) {
	for i := range t.w.back {
		if t.w.back[i] == 0 {
			t.w.back[i] = back
			t.w.at = function
			return
		}
	}
	panic("canalsteps: too many functions in one another")
}

// leave returns from the innermost function.
func (t *turn) leave() {
	for i := len(t.w.back) - 1; i >= 0; i-- {
		if t.w.back[i] != 0 {
			t.w.at, t.w.back[i] = t.w.back[i], 0
			return
		}
	}
	panic("canalsteps: there is no function to return from")
}

// call is the call that the worker is in.
func (t *turn) call() *call { return &t.programs[t.me-1][t.w.call] }

// finish ends the worker's call, and makes it ready for the next one.
func (t *turn) finish() {
	*t.w = worker{call: t.w.call + 1}
	t.begin()
}

// begin leads to the first step of the worker's call.
func (t *turn) begin() {
	t.w.at = finished
	if int(t.w.call) < len(t.programs[t.me-1]) {
		t.w.at = first[t.call().verb]
	}
}

// lock takes a mutex, or lets the worker wait.
func (t *turn) lock(mu *uint8) bool {
	if *mu != 0 {
		t.waits = true
		return false
	}
	*mu = t.me
	return true
}

func (t *turn) unlock(mu *uint8) {
	if *mu != t.me {
		panic("canalsteps: who unlocks has not locked")
	}
	*mu = 0
}

func (t *turn) limit() int {
	if c := t.call(); c.maxPer == 0 {
		return int(c.limit)
	}
	return int(t.w.limit)
}

// say adds to the story, if there is one.
func (t *turn) say(format string, args ...int) {
	if t.tell == nil {
		return
	}
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a
	}
	*t.tell = append(*t.tell, fmt.Sprintf(format, values...))
}
