package lockkeeper

import (
	"sync/atomic"
	"time"
)

// A SlotGranter is an [Engine] in the process of its callers that keeps plain claims apart from all
// others, each in a [Slot] of the caller. That is faster, and changes nothing else: grants, their
// order, fences, ends and reasons are as if all claims were made by Engine.Claim. An estimate of hold
// times (R17) may count some of many holds only. A plain claim is an exclusive claim of one path, of
// priority 0, that is made inside no other one, steals nothing, announces nothing and has no longest
// hold. Its session never expires.
//
// The engine moves a claim out of its slot whenever anything else may meet or see it. From then on it
// is a claim like any other, with the same id, fence and place in line, and all methods of Engine
// apply to it.
type SlotGranter interface {
	// OpenSlots returns the slots of the session that is open under the key k, until it is left or
	// taken over; nil if the engine keeps none for it. Its claims have the label l. The owner o is new:
	// it is that of these slots alone.
	OpenSlots(k Key, l Label, o *SlotOwner) Slots
}

// A SlotOwner is the client to whose session slots belong.
type SlotOwner struct {
	// Moved is called by the engine for each claim that it moves out of its slot, with its status
	// then: after the move, before the engine notifies the session of a change of that claim, and
	// before Ready of the wait receives. Moved returns quickly, and must not call the engine, whose
	// mutex is locked meanwhile.
	Moved func(*Slot, Status)
	// Slots are the slots. OpenSlots sets it.
	Slots Slots

	client *Client
}

// Slots are the plain claims of one session of a [SlotGranter]. Its methods are safe for concurrent
// use. None of them waits for a lock.
type Slots interface {
	// Take claims the path in s, which is a new slot, and returns SlotHeld or SlotWaiting. It returns
	// SlotEmpty if the engine has done nothing, because the claim meets one that is in no slot, or
	// would have to wait and wait is 0: the caller tries again, or calls Engine.Claim with another id.
	// Another wait than Forever is the bound of the wait. The engine does not end the wait in a slot
	// at its bound: the waiter moves the claim then.
	Take(s *Slot, path Path, wait time.Duration) SlotState
	// Give ends the claim in s: it releases a hold, or cancels a wait. It returns the state that the
	// slot had before. If that is SlotOver or SlotMoved, Give has done nothing.
	Give(s *Slot) SlotState
	// Move moves the claim out of s, if it is there. After that s is SlotMoved or SlotOver, and Moved
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
// the claim does nothing to others. It takes 128 bytes, with the Hold: a pair of a lock and its release
// allocates nothing else.
type Slot struct {
	// ID is that of the claim, by the rules of [Want].ID. The caller sets it and Owner before Take.
	ID    uint64
	Owner *SlotOwner
	// Wait is there while the claim waits, and until its wait is over. Take sets it.
	Wait *SlotWait
	// Fence is the number of the grant (R13). It does not change while the state is SlotHeld.
	Fence uint64

	// Of the engine, guarded by its mutex.
	Ticket uint64        // of the claim (R4)
	Since  time.Duration // when it was granted; of a waiting claim, when it came
	Place  *SlotPlace    // where the claim is, or was: it does not change after Take
	Index  int           // among the slots of the session

	hold Hold
}

// A SlotPlace is a path with slots.
type SlotPlace struct {
	Path Path
	Node any // of the engine
}

// A SlotWait is the part of a Slot that a claim needs only while it waits. The engine may use it again
// after the slot has been given back, if the waiter has set Received, or was cancelled.
type SlotWait struct {
	// Ready receives one value when the wait is over: the state is SlotHeld or SlotMoved then. It
	// receives nothing if Give cancels the wait. It has room for its one value, so the engine never
	// waits when it sends it.
	Ready chan struct{}
	// Received is set by the waiter when it has received from Ready and keeps what it got.
	Received atomic.Bool
	// Bound is the time of the engine at which the wait ends; Forever if it has no bound.
	Bound time.Duration

	Prev, Next *Slot // in line; of the engine, guarded by its mutex
}

// Path returns the path of a slot that was taken.
func (s *Slot) Path() Path { return s.Place.Path }

// State returns the state.
func (s *Slot) State() SlotState { return SlotState(atomic.LoadUint32(&s.hold.inSlot)) }

// SetState is for the engine, which calls it with its mutex locked.
func (s *Slot) SetState(to SlotState) { atomic.StoreUint32(&s.hold.inSlot, uint32(to)) }

// Begin sets the first state, within Take. Nobody else knows the slot before Take returns but the
// engine, by its mutex, so this store need not be atomic.
func (s *Slot) Begin(as SlotState) { s.hold.inSlot = uint32(as) }

// delivered reports whether the caller of the client has the hold, or certainly gets it.
func (s *Slot) delivered() bool { return s.Wait == nil || s.Wait.Received.Load() }
