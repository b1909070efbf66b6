package semaphore

import (
	"runtime"
	"sync/atomic"
)

// Slot is what an acquire got: one slot of a key, or several taken together. It
// is freed once, whoever does it: its own Release, or the end of its owner. It
// must not be copied, since a copy could be released once more; go vet finds
// copies. All methods are safe for concurrent use.
type Slot struct {
	_     noCopy
	state atomic.Uint32 // held, and then one way: see below
	owned bool          // the end of an owner may free it too
	grant
}

// grant is what was taken, and of what.
type grant struct {
	of         interface{ free(n int) } // the entry or the handle, whatever its key; nil if nothing was granted
	n, ordinal int
}

// The states of a slot go one way:
//
//	held -> freeing -> released
//	    \-> ending  -> ended
//
// Who brings it from held to freeing (Release) or to ending (the end of the
// owner) frees it: so each slot is freed once. The last two states only tell the
// owner's end that a Release beside it is through.
const (
	held uint32 = iota // as a new slot is, without a store for it
	freeing
	released
	ending
	ended
)

// Release gives the slots back. At the second call, or after the owner has ended,
// it changes nothing and returns [ErrNotHeld].
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

// end frees the slot because its owner ended. If a Release is freeing it just
// now, end waits for it: that is one addition, or that and taking the key away.
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

// settled says that nothing is left to free.
func (s *Slot) settled() bool {
	state := s.state.Load()
	return state == released || state == ended
}

// N is how many slots were taken together.
func (s *Slot) N() int { return s.n }

// Ordinal is how many slots of the key were in use just after these were taken,
// with these.
func (s *Slot) Ordinal() int { return s.ordinal }

// noCopy lets go vet find copies of what must not be copied.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
