package canalsteps

import "math/bits"

// These stand for owner.go, and for what package context does for it.

func (t *turn) owner() *owner { return &t.s.owners[t.call().owner] }

// lockOwner locks an owner, unless that is against the order of locks.
func (t *turn) lockOwner(o *owner) bool {
	if t.s.mu == t.me {
		t.wrong(lockOrder, "locks an owner inside a shard")
	}
	return t.lock(&o.mu)
}

func (t *turn) ownContext() {
	t.w.late = t.owner().done
	if t.w.late {
		t.say("sees that the context is done")
		t.w.answer = ownerEnded
		t.answered()
		return
	}
	t.say("sees that the context is not done")
	t.to(ownLock)
}

func (t *turn) ownLock() {
	if !t.lockOwner(t.owner()) {
		return
	}
	if t.owner().ended {
		t.w.late = true
		t.say("locks the owner, which has ended")
		t.w.answer = ownerEnded
		t.to(ownUnlock)
		return
	}
	t.say("locks the owner")
	t.to(acquireFind)
}

// ownNote begins note. In canal the list has room for 4 slots at first; here it
// has room for 1, so that it is full sooner.
func (t *turn) ownNote() {
	o := t.owner()
	switch {
	case t.w.answer != granted:
		t.to(ownUnlock)
	case o.slots != 0 && o.noted() == o.room:
		t.w.slot = uint8(bits.TrailingZeros16(o.slots))
		t.to(noteOver)
	default:
		t.to(noteAdd)
	}
}

// noteOver asks one slot of a full list whether it is settled.
func (t *turn) noteOver() {
	o := t.owner()
	if state := t.s.slots[t.w.slot].state; state == released || state == ended {
		t.say("takes slot %d off the owner's list", int(t.w.slot))
		o.slots &^= 1 << t.w.slot
	} else {
		t.say("keeps slot %d in the owner's list", int(t.w.slot))
	}
	rest := o.slots >> (t.w.slot + 1)
	if rest == 0 {
		o.room = 2 * o.noted()
		t.to(noteAdd)
		return
	}
	t.w.slot += 1 + uint8(bits.TrailingZeros16(rest))
}

func (t *turn) noteAdd() {
	t.w.slot = 0
	o := t.owner()
	o.room = max(o.room, 1)
	o.slots |= 1 << t.call().slot
	t.to(ownUnlock)
}

func (t *turn) ownUnlock() {
	t.unlock(&t.owner().mu)
	t.say("unlocks the owner")
	t.answered()
}

func (t *turn) closeStart() {
	if t.contexts[t.call().owner] {
		t.to(unwatch)
	} else {
		t.to(endLock)
	}
}

// contextDone is the first thing that others see of the end of a context.
func (t *turn) contextDone() {
	t.owner().done = true
	t.say("is done")
	t.to(contextStart)
}

// contextStart starts the goroutine of context.AfterFunc, unless it was stopped.
// Here it is the same worker that goes on as this goroutine.
func (t *turn) contextStart() {
	o := t.owner()
	if o.unwatched {
		t.say("has nobody to tell")
		t.finish()
		return
	}
	t.say("tells the owner")
	o.unwatched = true
	t.to(endLock)
}

func (t *turn) unwatch() {
	t.owner().unwatched = true
	t.say("does not wait for the context any more")
	t.to(endLock)
}

func (t *turn) endLock() {
	if !t.lockOwner(t.owner()) {
		return
	}
	t.owner().ended = true
	t.say("locks the owner and marks it as ended")
	t.to(endNext)
}

// endNext goes to the next slot of the owner's.
func (t *turn) endNext() {
	rest := t.owner().slots >> (t.w.slot + 1)
	if rest == 0 {
		t.to(endUnlock)
		return
	}
	t.w.slot += 1 + uint8(bits.TrailingZeros16(rest))
	t.to(endSwap)
}

func (t *turn) endUnlock() {
	o := t.owner()
	o.slots = 0
	t.unlock(&o.mu)
	t.say("unlocks the owner")
	t.s.closed[t.call().owner] = true
	t.finish()
}
