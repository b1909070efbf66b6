package semaphore

import (
	"runtime"
	"sync/atomic"
)

// Slot is the result of an acquire: one slot of a key, or several that were taken together. Its
// Release or the end of its owner frees it, once. It must not be copied, because a copy could be
// released again; go vet reports copies. All methods are safe for concurrent use.
type Slot struct {
	_     noCopy
	state atomic.Uint32 // see the states below
	owned bool          // the end of an owner may free it, too
	grant
}

// grant is the result of a successful acquire: n slots of an entry, directly or through a handle.
type grant struct {
	of         interface{ free(n int) } // an entry or a handle, of any key type; nil in a zero Slot
	n, ordinal int
}

// The states of a slot:
//
//	held ──Release──> freeing ──> released
//	  └──end of owner──> ending ──> ended
//
// A Release and the end of the owner both try the transition from held, and only the winner frees
// the slot. The transition to released ends the wait of an owner's end for a concurrent Release.
const (
	held uint32 = iota // zero, so that a new slot needs no store
	freeing
	released
	ending
	ended
)

// Release frees the slots. A second call, or a call after the end of the owner, changes nothing and
// returns [ErrNotHeld].
func (s *Slot) Release() error {
	if s == nil || s.of == nil {
		return ErrNotHeld
	}
	if !s.state.CompareAndSwap(held, freeing) {
		return s.notHeld()
	}
	s.of.free(s.n)
	if s.owned {
		s.state.Store(released)
	}
	return nil
}

func (s *Slot) notHeld() error {
	switch s.state.Load() {
	case ending, ended:
		return errFreedByEnd
	default:
		return ErrNotHeld
	}
}

// end frees the slot at the end of its owner. If a Release is freeing it, end waits for that: for
// one addition, and at most one eviction.
func (s *Slot) end() {
	if s.state.CompareAndSwap(held, ending) {
		s.of.free(s.n)
		s.state.Store(ended)
		return
	}
	for s.state.Load() == freeing {
		runtime.Gosched()
	}
}

// isFree reports whether the slot is free. It is false while a Release is freeing it.
func (s *Slot) isFree() bool {
	state := s.state.Load()
	return state == released || state == ended
}

// N returns the number of slots that were taken together.
func (s *Slot) N() int { return s.n }

// Ordinal returns the number of held slots of the key right after these were taken, including
// these.
func (s *Slot) Ordinal() int { return s.ordinal }

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
