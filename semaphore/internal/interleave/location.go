package interleave

import (
	"math/bits"
	"reflect"
	"unsafe"
)

// name identifies a goroutine or a location: by the goroutine that made or used it first, and a
// number.
type name uint32

// key identifies a location or a pointee in the hash of a state. It is a hash of the knowledge of
// the goroutine that used it first. So in any two executions equal keys identify the same value
// with the same past, even at different addresses.
type key uint64

// location is an atomic value or a mutex; it is the first field of each.
type location struct {
	name    name
	epoch   uint32 // of the execution
	version uint32 // number of changes
	locked  bool   // for a mutex
	key     key
	part    uint64 // its share in the hash of the state
	class   *class
}

// pointee identifies the target of an atomic pointer.
type pointee struct {
	name name
	key  key
}

// id returns the name for a story.
func (p pointee) id() uint64 { return isName | uint64(p.name) }

// class records, over all executions so far, how goroutines use the locations of one name. A
// location that only one goroutine uses, or that no goroutine changes, is hidden: its operations
// commute with all others, so they need no choice.
type class struct {
	user    name // the first goroutine that used it
	shared  bool // other goroutines used it, too
	changed bool
	visible bool // not hidden in this pass
}

func (c *class) used(by name, change bool) {
	if c.user == 0 {
		c.user = by
	}
	c.shared = c.shared || c.user != by
	c.changed = c.changed || change
}

func (c *class) isVisible() bool { return c.shared && c.changed }

// register gives a location its name and class, if it has none.
func (w *World) register(l *location) {
	if l.epoch == w.epoch {
		return
	}
	if l.epoch != 0 {
		w.fail("a location outlives an execution: Start must make everything that the program uses")
	}
	l.epoch, l.name = w.epoch, w.newName()
	l.class = w.x.class(l.name)
}

func (w *World) newName() name {
	if w.sharing != 0 {
		w.sharing++
		return w.sharing
	}
	if g := w.running; g != nil {
		g.named++
		return g.id<<16 | g.named
	}
	w.named++
	return w.named
}

// keyOf returns the key of a location, which it gives at the first operation.
func (w *World) keyOf(l *location) key {
	if l.key == 0 {
		l.key = w.newKey(0)
	}
	return l.key
}

// newKey returns a key for the nth value that the running goroutine names with its present
// knowledge.
func (w *World) newKey(n name) key {
	if g := w.running; g != nil {
		return key(mix(g.seen, uint64(g.id)<<16|uint64(n)))
	}
	return key(mix(1, uint64(w.named)<<16|uint64(n)))
}

// pointeeOf returns the pointee of p. The goroutine that publishes it names all its locations at
// once, so their names do not depend on which goroutine uses them first.
func (w *World) pointeeOf(p unsafe.Pointer, of reflect.Type) pointee {
	if p == nil {
		return pointee{}
	}
	if n, ok := w.pointees[p]; ok {
		return n
	}
	made := name(1)
	if g := w.running; g != nil {
		g.published++
		made = g.published
	}
	n := pointee{w.newName(), w.newKey(made)}
	w.pointees[p] = n
	w.registerAll(p, layoutOf(of), uint64(n.key))
	return n
}

// Share names all locations in the value at pointer, which goroutines share, by a number. So the
// hash of a state does not depend on which goroutine uses a location first.
func (w *World) Share(number uint16, pointer any) {
	v := reflect.ValueOf(pointer)
	w.sharing = 1<<31 | name(number)<<16
	w.registerAll(v.UnsafePointer(), layoutOf(v.Type().Elem()), mix(2, uint64(number)))
	w.sharing = 0
}

// registerAll names all locations in the value at p.
func (w *World) registerAll(p unsafe.Pointer, l *layout, from uint64) {
	for i, at := range l.at {
		l := (*location)(unsafe.Add(p, at))
		w.register(l)
		if l.key == 0 {
			l.key = key(mix(from, uint64(i)))
		}
	}
	for i, s := range l.slices {
		cells := *(*[]byte)(unsafe.Add(p, s.at)) // every slice has the same header
		for j := range len(cells) {
			w.registerAll(unsafe.Add(unsafe.Pointer(unsafe.SliceData(cells)), uintptr(j)*s.of.size), s.of,
				mix(from, uint64(i+1)<<32|uint64(j)))
		}
	}
}

// Drop says that no goroutine uses the shared value at pointer any more.
func (w *World) Drop(pointer any) {
	v := reflect.ValueOf(pointer)
	for _, at := range layoutOf(v.Type().Elem()).at {
		l := (*location)(unsafe.Add(v.UnsafePointer(), at))
		w.sum -= l.part
		l.part = 0
	}
}

// layout lists the locations of a type.
type layout struct {
	at     []uintptr
	slices []sliceLayout
	size   uintptr
}

type sliceLayout struct {
	at uintptr
	of *layout
}

var layouts = map[reflect.Type]*layout{}

func layoutOf(t reflect.Type) *layout {
	l := layouts[t]
	if l == nil {
		l = &layout{size: t.Size()}
		layouts[t] = l
		l.add(0, t)
	}
	return l
}

func (l *layout) add(at uintptr, t reflect.Type) {
	switch t.Kind() {
	case reflect.Struct:
		if t == reflect.TypeFor[location]() {
			l.at = append(l.at, at)
			return
		}
		for i := range t.NumField() {
			l.add(at+t.Field(i).Offset, t.Field(i).Type)
		}
	case reflect.Array:
		for i := range t.Len() {
			l.add(at+uintptr(i)*t.Elem().Size(), t.Elem())
		}
	case reflect.Slice:
		if of := layoutOf(t.Elem()); len(of.at)+len(of.slices) > 0 {
			l.slices = append(l.slices, sliceLayout{at, of})
		}
	}
}

// mix returns a hash of two numbers.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xe7037ed1a0b428db)
	h := high ^ low ^ b
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>32
}
