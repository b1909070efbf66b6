package interleave

import (
	"reflect"
	"unsafe"
)

// Gosched stands for runtime.Gosched. It waits for a change of the atomic value that the goroutine
// has just read.
func Gosched() { world.gosched() }

// GOMAXPROCS stands for runtime.GOMAXPROCS: there is one.
func GOMAXPROCS(int) int { return 1 }

// Cleanup stands for runtime.Cleanup; it has no Stop.
type Cleanup struct{}

// AddCleanup stands for runtime.AddCleanup. The cleanup is a goroutine of its own, which can start
// once the program has said that ptr is unreachable.
func AddCleanup[T, S any](ptr *T, cleanup func(S), arg S) Cleanup {
	w := world
	if w.cleanups == nil {
		w.cleanups = map[unsafe.Pointer]*goroutine{}
	}
	w.cleanups[unsafe.Pointer(ptr)] = w.later("cleanup", func() { cleanup(arg) })
	return Cleanup{}
}

// Forget says that pointer is unreachable, so its cleanup may run.
func (w *World) Forget(pointer any) { w.startCleanup(reflect.ValueOf(pointer).UnsafePointer()) }

func (w *World) startCleanup(p unsafe.Pointer) {
	if g := w.cleanups[p]; g != nil {
		g.ready = true
	}
}

// LastUse calls use, which is the last use of pointer. From the last KeepAlive in use, or from the
// beginning if there is none, pointer is unreachable, and its cleanup may run beside the rest of
// use.
//
// LastUse knows the last KeepAlive only after use has returned. If use did operations after it,
// LastUse stores its number under the label, and the exploration starts again.
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
		return // the program called Keep
	}
	delete(w.dying, p)
	if w.running.steps > u.at && !early {
		w.x.keeps[label], w.x.outdated = u.seen, true
	}
	w.startCleanup(p)
}

// Keep says, within a LastUse of pointer, that the result of the use refers to pointer, which
// therefore stays reachable.
func (w *World) Keep(pointer any) { delete(w.dying, reflect.ValueOf(pointer).UnsafePointer()) }

// lastUse is a call of LastUse that has not returned.
type lastUse struct {
	seen  int  // KeepAlives so far
	at    int  // number of operations of the goroutine at the last one
	early bool // an earlier execution has found last
	last  int  // the number of the last KeepAlive
}

func (w *World) kept(p unsafe.Pointer, u *lastUse) {
	u.at = w.running.steps
	if u.early && u.seen == u.last {
		w.startCleanup(p)
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
