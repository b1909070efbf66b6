package interleave_test

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// verb is the kind of a call.
type verb int8

const (
	acquire verb = iota + 1
	release
	closing
	cancel
	held
	all
	begin // of Do: does it call the function?
)

// Bounds of the programs.
const (
	maxKeys   = 3
	maxSlots  = 1 + slotsBefore + 5*slotsEach
	maxOwners = 2
	maxCalls  = 6 // at one time: one of each goroutine, and one of the setup
)

// event is a call, or its return.
type event struct {
	by       int8 // 0: the setup
	verb     verb
	returned bool
	key      int8
	n, limit int8
	owner    int8 // counted from 1; 0: none
	slot     int8
	result   int16 // of a return
}

// Results of calls. An acquire returns its ordinal, All a number for each key.
const (
	isFull     = 0
	isReleased = 1
	isNotHeld  = 0
	ownerEnded = -1
)

// pack encodes an event as a number; unpack decodes it.
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

// spec is a state of the specification: the number of held slots of each key, and the progress of
// each slot, owner and call. It changes only by moves.
type spec struct {
	inUse  [maxKeys]int8
	slots  [maxSlots]specSlot
	owners [maxOwners + 1]specOwner
	calls  [maxCalls]specCall
}

type specSlot struct {
	phase phase
	key   int8
	n     int8
	owner int8
}

type phase int8

const (
	isNothing phase = iota
	isHeld
	isReleasing // a Release will free it
	isFree      // by a Release
	isEnding    // the end of the owner will free it
	isEnded
)

type specOwner struct {
	done  bool // its context
	ended bool
}

type specCall struct {
	event
	stage stage
	seen  [maxKeys]int8 // for All: the number seen of each key, plus 1
}

type stage int8

const (
	isCalled stage = iota + 1
	isBetween
	isOver // it must return event.result
)

// Two kinds of calls have two moves each. An acquire for an owner first checks the owner's context and
// then takes the slot, so it may get one right after the end of the context; the end of the owner
// then frees it. A Release first decides that it frees the slot and then frees it, so another Release
// may return that the slot is not held shortly before it is free.

// moves yields each state that g can reach by one move.
func (g spec) moves(yield func(spec)) {
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

// freed returns the state with the slot free.
func (g spec) freed(slot int, phase phase) spec {
	s := &g.slots[slot]
	g.inUse[s.key] -= s.n
	*s = specSlot{phase: phase}
	return g
}

// over returns the state in which a call has its result.
func (g spec) over(call int, result int16) spec {
	g.calls[call].stage, g.calls[call].result = isOver, result
	g.calls[call].seen = [maxKeys]int8{}
	return g
}

// move yields the moves of one call.
func (g spec) move(i int, yield func(spec)) {
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

// taken returns the state after an attempt to take slots: all or none.
func (g spec) taken(i int) spec {
	c := g.calls[i]
	if g.inUse[c.key]+c.n > c.limit {
		return g.over(i, isFull)
	}
	g.inUse[c.key] += c.n
	g.slots[c.slot] = specSlot{isHeld, c.key, c.n, c.owner}
	return g.over(i, int16(g.inUse[c.key]))
}

// release decides in its first move that it frees the slot, and frees it in its second.
func (g spec) release(i int, yield func(spec)) {
	c := g.calls[i]
	if c.stage == isBetween {
		g = g.freed(int(c.slot), isFree).over(i, isReleased)
		if c.n > 0 { // the program does not use the slot again
			g.slots[c.slot] = specSlot{}
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

func (g spec) allFree(owner int8) bool {
	for _, s := range g.slots {
		if s.owner == owner && s.phase != isNothing && s.phase != isFree && s.phase != isEnded {
			return false
		}
	}
	return true
}

// look yields the moves of All: it sees one key that it has not seen.
func (g spec) look(i int, yield func(spec)) {
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
