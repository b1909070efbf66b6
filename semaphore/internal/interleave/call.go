package interleave

import "unsafe"

// Event is a call or a return, encoded by the program for its judge.
type Event uint64

// Judge records the calls and returns of an execution, and Record returns an error for a wrong
// result. State must differ between two histories if a common continuation is right after one of
// them and wrong after the other.
type Judge interface {
	Begin()
	Record(Event) error
	State() uint64
	Describe(Event) string
}

// noJudge is the judge of programs without one.
type noJudge struct{}

func (noJudge) Begin()                {}
func (noJudge) Record(Event) error    { return nil }
func (noJudge) State() uint64         { return 0 }
func (noJudge) Describe(Event) string { return "" }

// Call announces a call of the running goroutine. The judge records it as late as possible: with
// the first operation of the call that other goroutines could observe.
func (w *World) Call(e Event) {
	g := w.running
	if g == nil {
		w.record(e)
		return
	}
	g.calls, g.called = true, e
	if w.x.naive {
		w.pause(g.offLocation())
		w.note(g)
	}
}

// Return announces the return of the running goroutine's call. From then on the goroutine's
// knowledge is only knows and pointers, which must be values of atomic pointers.
func (w *World) Return(e Event, knows uint64, pointers ...unsafe.Pointer) {
	g := w.running
	if g == nil {
		w.record(e)
		return
	}
	if g.calls {
		// Other goroutines could observe nothing of the call, but its order matters to the judge.
		w.pause(g.offLocation())
		w.note(g)
	}
	if w.x.naive {
		w.pause(g.offLocation())
	}
	w.record(e)
	g.inside = false
	for _, p := range pointers {
		n, ok := w.pointees[p]
		if !ok {
			w.fail("a program keeps a pointer that was never in an atomic pointer")
		}
		knows = mix(knows, uint64(n.key))
	}
	g.sees(mix(3, knows))
}

func (w *World) note(g *goroutine) {
	g.calls = false
	w.ran = append(w.ran, turns{g: g.index, calls: true})
	w.record(g.called)
}

func (w *World) record(e Event) {
	if w.x.unjudged {
		return
	}
	if w.story != nil {
		w.story.event(w.running, w.x.judge.Describe(e))
	}
	if err := w.x.judge.Record(e); err != nil {
		w.fail("%v", err)
	}
}

// offLocation returns g, about to do an operation without a location.
func (g *goroutine) offLocation() *goroutine {
	g.op, g.inside = opLoad, false
	return g
}
