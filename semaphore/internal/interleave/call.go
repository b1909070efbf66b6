package interleave

import "unsafe"

// Event is a call or a return. What it means is between a program and its judge.
type Event uint64

// Judge follows the calls of an execution, and says whether what they return is
// right. State must tell apart any two pasts that it would judge differently in
// the same future.
type Judge interface {
	Begin()
	Note(Event) error
	State() uint64
	Tell(Event) string
}

// indifferent is the judge of programs that have none.
type indifferent struct{}

func (indifferent) Begin()            {}
func (indifferent) Note(Event) error  { return nil }
func (indifferent) State() uint64     { return 0 }
func (indifferent) Tell(Event) string { return "" }

// Call tells the judge that the running goroutine makes a call. The judge hears of
// it as late as can be: when the first operation of the call is done that others
// could notice.
func (w *World) Call(e Event) {
	g := w.running
	if g == nil {
		w.judged(e)
		return
	}
	g.calls, g.called = true, e
	if w.x.naive {
		w.stand(g.beside())
		w.note(g)
	}
}

// Return tells the judge that the running goroutine's call has come back. Of all
// that the goroutine knew before, and has observed in the call, it knows no more
// from now on than knows tells, and the atomic pointers' values that pointers are.
func (w *World) Return(e Event, knows uint64, pointers ...unsafe.Pointer) {
	g := w.running
	if g == nil {
		w.judged(e)
		return
	}
	if g.calls {
		// Others could notice nothing, but the judge looks at when it was.
		w.stand(g.beside())
		w.note(g)
	}
	if w.x.naive {
		w.stand(g.beside())
	}
	w.judged(e)
	g.inside = false
	for _, p := range pointers {
		n, ok := w.pointees[p]
		if !ok {
			w.fail("a program keeps a pointer that no atomic pointer ever had")
		}
		knows = mix(knows, uint64(n.key))
	}
	g.sees(mix(3, knows))
}

func (w *World) note(g *goroutine) {
	g.calls = false
	w.passed = append(w.passed, turns{g: g.index, calls: true})
	w.judged(g.called)
}

func (w *World) judged(e Event) {
	if w.x.deaf {
		return
	}
	if w.told != nil {
		w.told.event(w.running, w.x.judge.Tell(e))
	}
	if err := w.x.judge.Note(e); err != nil {
		w.fail("%v", err)
	}
}

// beside is g, about to do something that is at no location.
func (g *goroutine) beside() *goroutine {
	g.op, g.inside = opLoad, false
	return g
}
