package interleave_test

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// verb is what a call does.
type verb int8

const (
	acquire verb = iota + 1
	release
	closing
	cancel
	held
	all
	begin // of Do: may it begin?
)

// The bounds of what programs use.
const (
	mostKeys   = 3
	mostSlots  = 1 + slotsBefore + 5*slotsEach
	mostOwners = 2
	mostCalls  = 6 // at one time: one of each goroutine, and one of who is alone
)

// event is a call, or its return.
type event struct {
	by       int8 // 0: who is alone
	verb     verb
	returned bool
	key      int8
	n, limit int8
	owner    int8 // counted from 1; 0: none
	slot     int8
	result   int16 // of what has returned
}

// What calls return. An acquire returns its ordinal, All a number for each key.
const (
	isFull     = 0
	isReleased = 1
	isNotHeld  = 0
	ownerEnded = -1
)

// pack writes an event as a number, and unpack reads it.
func (e event) pack() interleave.Event {
	p := interleave.Event(0)
	for _, v := range []int8{e.by, int8(e.verb), e.key, e.n, e.limit, e.owner, e.slot} {
		p = p<<6 | interleave.Event(v)
	}
	p = p<<16 | interleave.Event(uint16(e.result))
	if e.returned {
		p |= 1 << 60
	}
	return p
}

func unpack(p interleave.Event) (e event) {
	e.returned = p>>60 != 0
	e.result = int16(p & 0xffff)
	p >>= 16
	for _, v := range []*int8{&e.slot, &e.owner, &e.limit, &e.n, &e.key, (*int8)(&e.verb), &e.by} {
		*v = int8(p & 0x3f)
		p >>= 6
	}
	return e
}

func (e event) String() string {
	key := string(rune('a' + e.key))
	slot := fmt.Sprintf("slot %d", e.slot)
	call, result := "", fmt.Sprint(e.result)
	switch e.verb {
	case acquire:
		call = fmt.Sprintf("TryAcquire %d of %s under %d for %s", e.n, key, e.limit, slot)
		if e.owner > 0 {
			call += fmt.Sprintf(" of owner %d", e.owner)
		}
		result = map[int16]string{isFull: "full", ownerEnded: "owner ended"}[e.result]
		if e.result > 0 {
			result = fmt.Sprintf("ordinal %d", e.result)
		}
	case release:
		call = "Release of " + slot
		result = map[int16]string{
			isReleased: "released",
			isNotHeld:  "not held",
			ownerEnded: "not held, since its owner ended",
		}[e.result]
	case closing:
		call, result = fmt.Sprintf("Close of owner %d", e.owner), "closed"
	case cancel:
		call, result = fmt.Sprintf("the context of owner %d ends", e.owner), "ended"
	case held:
		call = "Held of " + key
	case all:
		call = "All"
		result = fmt.Sprintf("a %d, b %d, c %d", e.result&15, e.result>>4&15, e.result>>8)
	case begin:
		call = fmt.Sprintf("Do of owner %d", e.owner)
		result = map[int16]string{1: "begins", ownerEnded: "owner ended"}[e.result]
	}
	if e.returned {
		return call + ": " + result
	}
	return call
}

// ghost is what the specification knows: how many slots of each key are in use,
// and how far each slot, owner and call has come. Its moves are the only moments
// at which anything changes.
type ghost struct {
	inUse  [mostKeys]int8
	slots  [mostSlots]ghostSlot
	owners [mostOwners + 1]ghostOwner
	calls  [mostCalls]ghostCall
}

type ghostSlot struct {
	phase phase
	key   int8
	n     int8
	owner int8
}

type phase int8

const (
	isNothing phase = iota
	isHeld
	isReleasing // a Release has it, and will free it
	isFree      // by a Release
	isEnding    // the end of the owner has it, and will free it
	isEnded
)

type ghostOwner struct {
	done  bool // its context
	ended bool
}

type ghostCall struct {
	event
	stage stage
	seen  [mostKeys]int8 // what All has seen of each key, and 1
}

type stage int8

const (
	isCalled stage = iota + 1
	isBetween
	isOver // event.result is what it must return
)

// Two calls have two moments each. An acquire for an owner looks at the owner's
// context first and takes the slot then, so it may get one just after the context
// was done; the end of the owner, which is about to come, frees it. And a Release
// decides first that it is the one who frees the slot, so another Release may say
// that the slot is not held a moment before it is free.

// moves calls yield with each ghost that this one can become by one move.
func (g ghost) moves(yield func(ghost)) {
	for i := range g.calls {
		if s := g.calls[i].stage; s == isCalled || s == isBetween {
			g.move(i, yield)
		}
	}
	for o, owner := range g.owners {
		if owner.done && !owner.ended {
			next := g
			next.owners[o].ended = true
			yield(next)
		}
	}
	for i, s := range g.slots {
		switch {
		case s.phase == isHeld && s.owner > 0 && g.owners[s.owner].ended:
			next := g
			next.slots[i].phase = isEnding
			yield(next)
		case s.phase == isEnding:
			yield(g.freed(i, isEnded))
		}
	}
}

// freed is the ghost with a slot free.
func (g ghost) freed(slot int, phase phase) ghost {
	s := &g.slots[slot]
	g.inUse[s.key] -= s.n
	*s = ghostSlot{phase: phase}
	return g
}

// over is the ghost with a call that has come to a result.
func (g ghost) over(call int, result int16) ghost {
	g.calls[call].stage, g.calls[call].result = isOver, result
	g.calls[call].seen = [mostKeys]int8{}
	return g
}

// move makes a move of one call.
func (g ghost) move(i int, yield func(ghost)) {
	c := g.calls[i]
	owner := g.owners[c.owner]
	switch c.verb {
	case acquire:
		switch {
		case c.stage == isCalled && (owner.ended || owner.done), owner.ended:
			yield(g.over(i, ownerEnded))
		case c.stage == isCalled && c.owner > 0:
			g.calls[i].stage = isBetween
			yield(g)
		default:
			yield(g.taken(i))
		}
	case release:
		g.release(i, yield)
	case closing:
		if c.stage == isCalled {
			g.owners[c.owner].ended = true
			g.calls[i].stage = isBetween
			yield(g)
		} else if g.allFree(c.owner) {
			yield(g.over(i, 0))
		}
	case cancel:
		g.owners[c.owner].done = true
		yield(g.over(i, 0))
	case held:
		yield(g.over(i, int16(g.inUse[c.key])))
	case all:
		g.look(i, yield)
	case begin:
		result := int16(1)
		if owner.ended || owner.done {
			result = ownerEnded
		}
		yield(g.over(i, result))
	}
}

// taken is the ghost after an attempt to take slots: all or none of them.
func (g ghost) taken(i int) ghost {
	c := g.calls[i]
	if g.inUse[c.key]+c.n > c.limit {
		return g.over(i, isFull)
	}
	g.inUse[c.key] += c.n
	g.slots[c.slot] = ghostSlot{isHeld, c.key, c.n, c.owner}
	return g.over(i, int16(g.inUse[c.key]))
}

// release has two moments: at the first one it is decided who frees the slot, at
// the second one it is free.
func (g ghost) release(i int, yield func(ghost)) {
	c := g.calls[i]
	if c.stage == isBetween {
		g = g.freed(int(c.slot), isFree).over(i, isReleased)
		if c.n > 0 { // the last that is heard of the slot
			g.slots[c.slot] = ghostSlot{}
		}
		yield(g)
		return
	}
	switch g.slots[c.slot].phase {
	case isHeld:
		g.slots[c.slot].phase = isReleasing
		g.calls[i].stage = isBetween
		yield(g)
	case isEnding, isEnded:
		yield(g.over(i, ownerEnded))
	default:
		yield(g.over(i, isNotHeld))
	}
}

func (g ghost) allFree(owner int8) bool {
	for _, s := range g.slots {
		if s.owner == owner && s.phase != isNothing && s.phase != isFree && s.phase != isEnded {
			return false
		}
	}
	return true
}

// look lets All see one key that it has not seen.
func (g ghost) look(i int, yield func(ghost)) {
	result, seenAll := int16(0), true
	for key, seen := range g.calls[i].seen {
		if seen == 0 {
			next := g
			next.calls[i].seen[key] = 1 + g.inUse[key]
			yield(next)
			seenAll = false
		}
		result |= int16(seen-1) << (4 * key)
	}
	if seenAll {
		yield(g.over(i, result))
	}
}
