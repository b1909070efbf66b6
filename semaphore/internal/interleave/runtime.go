package interleave

import (
	"reflect"
	"unsafe"
)

// Gosched stands for runtime.Gosched, called to wait for what an atomic value that
// was just read will be.
func Gosched() { world.gosched() }

// GOMAXPROCS stands for runtime.GOMAXPROCS: there is one.
func GOMAXPROCS(int) int { return 1 }

// Cleanup stands for runtime.Cleanup, which nobody stops yet.
type Cleanup struct{}

// AddCleanup stands for runtime.AddCleanup. The cleanup is a goroutine of its own
// that can start when the program has said that nobody reaches ptr any more.
func AddCleanup[T, S any](ptr *T, cleanup func(S), arg S) Cleanup {
	w := world
	if w.cleanups == nil {
		w.cleanups = map[unsafe.Pointer]*goroutine{}
	}
	w.cleanups[unsafe.Pointer(ptr)] = w.later("cleanup", func() { cleanup(arg) })
	return Cleanup{}
}

// Forget says that nobody reaches pointer any more, so that its cleanup may run.
func (w *World) Forget(pointer any) { w.lose(reflect.ValueOf(pointer).UnsafePointer()) }

func (w *World) lose(p unsafe.Pointer) {
	if g := w.cleanups[p]; g != nil {
		g.ready = true
	}
}

// LastUse calls use, which is the last that the program does with pointer. From
// the last KeepAlive in there on, or from the beginning if there is none, nobody
// reaches pointer any more, and its cleanup may run beside the rest.
//
// That a KeepAlive is the last one is not known before use comes back. If use has
// done operations after it, this is noted by the label, and the exploration begins
// again.
func (w *World) LastUse(label string, pointer any, use func()) {
	p := reflect.ValueOf(pointer).UnsafePointer()
	if w.dying == nil {
		w.dying = map[unsafe.Pointer]*lastUse{}
	}
	last, early := w.x.keeps[label]
	u := &lastUse{early: early, last: last, at: w.running.steps}
	w.dying[p] = u
	w.kept(p, u)
	use()
	if w.dying[p] == nil {
		return // Keep
	}
	delete(w.dying, p)
	if w.running.steps > u.at && !early {
		w.x.keeps[label], w.x.surprised = u.seen, true
	}
	w.lose(p)
}

// Keep says, within a LastUse of pointer, that what came of it refers to pointer, which stays
// reachable.
func (w *World) Keep(pointer any) { delete(w.dying, reflect.ValueOf(pointer).UnsafePointer()) }

// lastUse is one that goes on.
type lastUse struct {
	seen  int  // KeepAlives up to now
	at    int  // how many operations the goroutine had done at the last one
	early bool // the last of them is known
	last  int
}

func (w *World) kept(p unsafe.Pointer, u *lastUse) {
	u.at = w.running.steps
	if u.early && u.seen == u.last {
		w.lose(p)
	}
}

// KeepAlive stands for runtime.KeepAlive.
func KeepAlive(pointer any) {
	p := reflect.ValueOf(pointer).UnsafePointer()
	if u := world.dying[p]; u != nil {
		u.seen++
		world.kept(p, u)
	}
}
