package lockkeeper

import (
	"sync/atomic"
	"time"
)

// A SlotGranter is an [Engine] in the process of its callers that keeps plain claims apart from all
// others, each in a [Slot] of the caller. That is faster, and changes nothing else: grants, their
// order, fences, ends and reasons are as if all claims were made by Engine.Claim. A plain claim is an
// exclusive claim of one path, of priority 0, that waits without a bound or not at all, is made inside
// no other one, steals nothing, announces nothing and has no longest hold. Its session never expires.
//
// The engine moves a claim out of its slot whenever anything else may meet or see it. From then on it
// is a claim like any other, with the same id, fence and place in line, and all methods of Engine
// apply to it.
type SlotGranter interface {
	// OpenSlots returns the slots of the session that is open under the key k, until it is left or
	// taken over; nil if the engine keeps none for it. Its claims have the label l. The engine calls
	// moved for each claim that it moves out of its slot, with its status then: after the move, before
	// it notifies the session of a change of that claim, and before the slot's Ready receives.
	// moved must return quickly, and must not call the engine, whose mutex is locked meanwhile.
	OpenSlots(k Key, l Label, moved func(*Slot, Status)) Slots
}

// Slots are the plain claims of one session of a [SlotGranter]. Its methods are safe for concurrent
// use. None of them waits for a lock.
type Slots interface {
	// Take makes the claim that s describes, and returns SlotHeld or SlotWaiting. It returns SlotEmpty
	// if the engine has done nothing, because the claim meets one that is in no slot, or would have to
	// wait and wait is not set: the caller calls Engine.Claim, with another id. A slot is taken once.
	Take(s *Slot, wait bool) SlotState
	// Give ends the claim in s: it releases a hold, or cancels a wait. It returns the state that the
	// slot had before. If that is SlotOver or SlotMoved, Give has done nothing.
	Give(s *Slot) SlotState
	// Move moves the claim out of s, if it is there. After that s is SlotMoved or SlotOver, and moved
	// has returned.
	Move(s *Slot)
	// Close moves all claims out of their slots. No slot can be taken any more.
	Close()
}

// SlotState is the state of a [Slot].
type SlotState uint32

const (
	// SlotEmpty: it was not taken.
	SlotEmpty SlotState = iota
	// SlotWaiting: its claim waits.
	SlotWaiting
	// SlotHeld: its claim is held.
	SlotHeld
	// SlotOver: its claim was given back, or its wait was cancelled. It stays so.
	SlotOver
	// SlotMoved: its claim is an ordinary claim now. It stays so.
	SlotMoved
)

// A Slot has one plain claim, once. It is never used for another one, so a use of it after the end of
// the claim does nothing to others.
type Slot struct {
	// Path and ID are those of the claim. The caller sets them before Take. ID follows the rules of
	// [Want].ID.
	Path Path
	ID   uint64
	// Ready receives one value when the wait in this slot is over: the state is SlotHeld or SlotMoved
	// then. It receives nothing if Give cancels the wait. The engine makes it before a wait.
	Ready chan struct{}
	// Fence is the number of the grant (R13). It does not change while the state is SlotHeld.
	Fence uint64

	state atomic.Uint32

	// Of the engine, guarded by its mutex.
	Ticket      uint64        // of the claim (R4)
	Since       time.Duration // when it was granted; of a waiting claim, when it came
	Of          Slots         // by which it was taken
	Place       any           // where the claim is
	Prev, Next  *Slot         // in line
	Left, Right *Slot         // of the session

	client    *Client
	delivered atomic.Bool // the caller of the client has the hold
	hold      Hold
}

// State returns the state.
func (s *Slot) State() SlotState { return SlotState(s.state.Load()) }

// SetState is for the engine, which calls it with its mutex locked.
func (s *Slot) SetState(to SlotState) { s.state.Store(uint32(to)) }

// MakeReady is for the engine, which calls it before a wait. Ready has room for its one value, so the
// engine never waits when it sends it.
func (s *Slot) MakeReady() {
	if s.client != nil {
		s.Ready, _ = s.client.readyRoom.Get().(chan struct{})
	}
	if s.Ready == nil {
		s.Ready = make(chan struct{}, 1)
	}
}
