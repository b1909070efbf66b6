package remote

import (
	"context"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A call waits for one answer.
type call struct {
	done    chan struct{}   // filled when it is answered; never closed, so that it can be used again
	ctx     context.Context // of its caller; nil: it has none
	session string
	want    lockkeeper.Want // of a claim
	due     time.Time       // expire ends the call then; zero: its context does
	home    *sync.Pool      // of calls that are used again

	relies   [2]*endWatch       // see rely
	graceful *roundtrip.Context // of ends

	answer
}

// An answer is the result of a call: an error, a lease, a status, the server's state, or nothing.
type answer struct {
	err    error
	lease  lockkeeper.Lease
	status lockkeeper.Status
	about  *wire.About
}

func newCall() *call { return &call{done: make(chan struct{}, 1)} }

// newCall returns a call that free gives back.
func (e *Engine) newCall() *call {
	cl, ok := e.spare.Get().(*call)
	if !ok {
		cl = newCall()
		cl.home = &e.spare
	}
	return cl
}

// free lets another caller use the call, whose answer has come.
func (cl *call) free() {
	cl.answer, cl.want, cl.session, cl.due, cl.ctx = answer{}, lockkeeper.Want{}, "", time.Time{}, nil
	cl.relies, cl.graceful = [2]*endWatch{}, nil
	cl.home.Put(cl)
}

// take adds one reply to the answer. It returns an error if the reply is invalid.
func (cl *call) take(a *wire.Answer) (invalid error) {
	switch a.Result {
	case wire.ResultError:
		var refusal *lockkeeper.Error
		if refusal, invalid = a.Error(); invalid == nil {
			cl.err = refusal
		}
	case wire.ResultLease:
		invalid = a.Lease(cl.session, &cl.lease)
	case wire.ResultStatus:
		invalid = a.Status(cl.session, &cl.want, &cl.status)
	case wire.ResultAbout:
		cl.about, invalid = a.About()
	}
	return invalid
}

// The number of a call has the slot in its low bits, and the slot's generation, from 1, above them.
const (
	slotBits       = 20
	generationBits = 64 - slotBits
)

// calls are the open calls and lists of a connection. A number leads to its call without a search, and
// a late reply to a former call of the slot finds none: a slot has a generation once, and is not used
// again after its last one.
type calls struct {
	slotBits, generationBits uint8 // the zero value has no numbers

	slots []callSlot
	free  []uint32
	open  int    // calls, without lists
	lists int    // open lists
	next  uint64 // the order of the next call
}

type callSlot struct {
	generation uint64
	order      uint64 // rises with each call
	call       *call  // nil if the slot is free, or has a list
	list       *list
}

// add gives a call or a list a number; false if there are too many.
func (cs *calls) add(cl *call, l *list) (number uint64, ok bool) {
	if len(cs.free) == 0 {
		if cs.generationBits == 0 || len(cs.slots) == 1<<cs.slotBits {
			return 0, false
		}
		cs.slots = append(cs.slots, callSlot{})
		cs.free = append(cs.free, uint32(len(cs.slots)-1))
	}
	last := len(cs.free) - 1
	slot := cs.free[last]
	cs.free = cs.free[:last]
	s := &cs.slots[slot]
	cs.next++
	*s = callSlot{generation: s.generation + 1, order: cs.next, call: cl, list: l}
	if cl != nil {
		cs.open++
	} else {
		cs.lists++
	}
	return s.generation<<cs.slotBits | uint64(slot), true
}

// find returns the call or the list of a number; nil if neither is open.
func (cs *calls) find(number uint64) (*call, *list) {
	slot := number & (1<<cs.slotBits - 1)
	if slot >= uint64(len(cs.slots)) || cs.slots[slot].generation != number>>cs.slotBits {
		return nil, nil
	}
	return cs.slots[slot].call, cs.slots[slot].list
}

// remove closes a call or a list. It reports whether one was open.
func (cs *calls) remove(number uint64) bool {
	cl, l := cs.find(number)
	switch {
	case cl != nil:
		cs.open--
		cl.relyNoMore()
	case l != nil:
		cs.lists--
	default:
		return false
	}
	slot := uint32(number & (1<<cs.slotBits - 1))
	cs.slots[slot].call, cs.slots[slot].list = nil, nil
	if cs.slots[slot].generation < 1<<cs.generationBits-1 {
		cs.free = append(cs.free, slot)
	}
	return true
}

// removeAt closes the call or the list in a slot.
func (cs *calls) removeAt(slot int) { cs.remove(cs.slots[slot].generation<<cs.slotBits | uint64(slot)) }

// expire closes the calls that are due, and returns them. It also returns when the next one is due; zero
// if none is.
func (cs *calls) expire(now time.Time) (due []*call, next time.Time) {
	for i := range cs.slots {
		cl := cs.slots[i].call
		switch {
		case cl == nil || cl.due.IsZero():
		case !cl.due.After(now):
			due = append(due, cl)
			cs.removeAt(i)
		case next.IsZero() || cl.due.Before(next):
			next = cl.due
		}
	}
	return due, next
}

// oldest returns the order of the call that has waited longest; 0 if none waits.
func (cs *calls) oldest() (order uint64) {
	for i := range cs.slots {
		if s := &cs.slots[i]; s.call != nil && (order == 0 || s.order < order) {
			order = s.order
		}
	}
	return order
}

// each calls do with every open call and list. The order of calls does not matter.
func (cs *calls) each(do func(*call, *list)) {
	for i := range cs.slots {
		if s := &cs.slots[i]; s.call != nil || s.list != nil {
			do(s.call, s.list)
		}
	}
}
