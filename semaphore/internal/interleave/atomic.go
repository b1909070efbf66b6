package interleave

import (
	"reflect"
	"unsafe"
)

// integer is an atomic number.
type integer[T int32 | int64 | uint32 | uint64] struct {
	location
	value T
}

// Load returns the value.
func (x *integer[T]) Load() T {
	x.turn(opLoad)
	x.done(opLoad, false, 0, uint64(x.value), 0, uint64(x.value))
	return x.value
}

// Store sets the value.
func (x *integer[T]) Store(value T) {
	x.turn(opStore)
	x.value = value
	x.done(opStore, true, uint64(x.value), 0, 0, uint64(value))
}

// Swap sets the value and returns the one before.
func (x *integer[T]) Swap(value T) T {
	x.turn(opSwap)
	old := x.value
	x.value = value
	x.done(opSwap, true, uint64(x.value), uint64(old), uint64(old), uint64(value))
	return old
}

// Add adds delta to the value and returns the sum.
func (x *integer[T]) Add(delta T) T {
	x.turn(opAdd)
	x.value += delta
	sum := x.value
	x.done(opAdd, true, uint64(sum), uint64(sum), uint64(delta), uint64(sum))
	return sum
}

// CompareAndSwap sets the value if it is old, and reports whether it was.
func (x *integer[T]) CompareAndSwap(old, value T) bool {
	x.turn(opCompareAndSwap)
	ok := x.value == old
	if ok {
		x.value = value
	}
	x.done(opCompareAndSwap, ok, uint64(x.value), truth(ok), uint64(old), uint64(value))
	return ok
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Int32 stands for atomic.Int32.
type Int32 = integer[int32]

// Int64 stands for atomic.Int64.
type Int64 = integer[int64]

// Uint32 stands for atomic.Uint32.
type Uint32 = integer[uint32]

// Uint64 stands for atomic.Uint64.
type Uint64 = integer[uint64]

// Pointer stands for atomic.Pointer.
type Pointer[T any] struct {
	location
	value *T
	to    pointee
}

func pointeeOf[T any](p *T) pointee {
	return world.pointeeOf(unsafe.Pointer(p), reflect.TypeFor[T]())
}

func (x *Pointer[T]) set(op operation, p *T, result, a uint64) {
	x.value, x.to = p, pointeeOf(p)
	x.done(op, true, uint64(x.to.key), result, a, x.to.id())
}

// Load returns the pointer.
func (x *Pointer[T]) Load() *T {
	x.turn(opLoad)
	x.done(opLoad, false, 0, uint64(x.to.key), 0, x.to.id())
	return x.value
}

// Store sets the pointer.
func (x *Pointer[T]) Store(p *T) {
	x.turn(opStore)
	x.set(opStore, p, 0, 0)
}

// Swap sets the pointer and returns the one before.
func (x *Pointer[T]) Swap(p *T) *T {
	x.turn(opSwap)
	old, was := x.value, x.to
	x.set(opSwap, p, uint64(was.key), was.id())
	return old
}

// CompareAndSwap sets the pointer if it is old, and reports whether it was.
func (x *Pointer[T]) CompareAndSwap(old, p *T) bool {
	x.turn(opCompareAndSwap)
	was := pointeeOf(old)
	if x.value == old {
		x.set(opCompareAndSwap, p, 1, was.id())
		return true
	}
	x.done(opCompareAndSwap, false, 0, 0, was.id(), pointeeOf(p).id())
	return false
}
