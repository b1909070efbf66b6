package interleave

import "unsafe"

// execute runs the program once.
func (x *explorer) execute() *World {
	x.epoch++
	w := &World{x: x, epoch: x.epoch, pointees: map[unsafe.Pointer]pointee{}}
	if x.describe {
		w.story = &story{}
	}
	world = w
	defer func() { world = nil }()
	x.judge.Begin()
	w.alone(func() { x.program.Start(w) })
	if w.failure != "" {
		return w
	}
	w.prime()
	for w.next != nil {
		g := w.next
		w.next = nil
		w.resume(g)
	}
	w.leaveAll()
	if w.ended && w.failure == "" && x.program.End != nil {
		w.alone(func() {
			if err := x.program.End(w); err != nil {
				w.fail("at the end: %v", err)
			}
		})
	}
	return w
}

// alone calls f, as the setup or the end of the program, while no goroutine runs.
func (w *World) alone(f func()) {
	defer func() {
		if r := recover(); r != nil {
			w.panicked(r)
		}
	}()
	f()
}

// prime runs each goroutine up to its first choice.
func (w *World) prime() {
	w.priming = true
	for _, g := range w.goroutines {
		if g.ready {
			w.resume(g)
		}
	}
	w.priming = false
	w.next = w.choose(nil)
}

func (w *World) resume(g *goroutine) {
	w.running = g
	if !g.started && !w.priming {
		g.sees(mix(g.seen, uint64(opStart)))
		w.count(g)
	}
	g.on.resume()
	w.running = nil
}

// leaveAll ends the goroutines that are still running.
func (w *World) leaveAll() {
	w.leaving = true
	for _, g := range w.goroutines {
		if g.started && !g.finished {
			w.resume(g)
		}
	}
	w.leaving = false
}
