package canalsteps

// Bugs that are planted into owners and slots.

// releaseFreesFirst marks the slot after it has freed it.
func releaseFreesFirst(t *turn) {
	s := &t.s.slots[t.call().slot]
	if s.state != held || s.of == 0 {
		t.say("has no slot")
		t.finish()
		return
	}
	t.say("sees that the slot is held")
	t.w.entry = s.of
	t.enter(freeAdd, planted1)
}

func releaseMarks(t *turn) {
	s := &t.s.slots[t.call().slot]
	s.state, s.of = released, 0
	t.say("marks the slot as released")
	t.finish()
}

// endFreesAnyway does not look whether somebody else frees the slot.
func endFreesAnyway(t *turn) {
	s := &t.s.slots[t.w.slot]
	if s.state == released || s.state == ended {
		t.say("sees that slot %d is free", int(t.w.slot))
		t.to(endNext)
		return
	}
	t.say("frees slot %d, in whatever state", int(t.w.slot))
	s.state = ending
	t.w.entry = t.find(t.asked[t.w.slot].key)
	s.of = 0
	t.enter(freeAdd, endStore)
}

// endGoesOn does not wait for who is just releasing.
func endGoesOn(t *turn) {
	t.say("does not wait for it")
	t.to(endNext)
}

// ownUnlocked looks at the owner, and lets go of it before it takes the slot.
func ownUnlocked(t *turn) {
	if t.owner().mu != 0 {
		t.waits = true
		return
	}
	t.w.late = t.owner().ended
	if t.w.late {
		t.say("sees that the owner has ended")
		t.w.answer = ownerEnded
		t.answered()
		return
	}
	t.say("sees that the owner has not ended")
	t.to(acquireFind)
}

// noteAfterwards is where ownUnlocked notes what it has got.
func noteAfterwards(t *turn) {
	if t.w.answer != granted {
		t.answered()
		return
	}
	t.to(planted1)
}

func noteAlone(t *turn) {
	if t.owner().mu != 0 {
		t.waits = true
		return
	}
	t.owner().slots |= 1 << t.call().slot
	t.say("notes the slot with the owner")
	t.answered()
}

// ownWithoutContext does not ask the context, only whether the owner has been told.
func ownWithoutContext(t *turn) {
	t.w.late = t.owner().done
	t.say("does not ask the context")
	t.to(ownLock)
}

// noteDropsFreeing takes slots off the list that are still being released.
func noteDropsFreeing(t *turn) {
	s := &t.s.slots[t.w.slot]
	was := s.state
	if was == freeing {
		s.state = released // for noteOver's eyes
	}
	t.noteOver()
	s.state = was
}

// endTakesList takes the list under the lock and frees what is in it afterwards.
func endTakesList(t *turn) {
	o := t.owner()
	if o.mu != 0 {
		t.waits = true
		return
	}
	o.ended = true
	t.w.limit, o.slots = uint8(o.slots), 0 // a register that nobody needs just now
	t.say("marks the owner as ended, takes its list, and unlocks it")
	t.to(endNext)
}

func endNextOfList(t *turn) {
	for t.w.slot++; t.w.slot < 8; t.w.slot++ {
		if t.w.limit&(1<<t.w.slot) != 0 {
			t.to(endSwap)
			return
		}
	}
	t.to(endUnlock)
}

func endWithoutLock(t *turn) {
	t.say("returns")
	t.s.closed[t.call().owner] = true
	t.finish()
}

// unnote takes a slot that is being released off its owner's list.
func unnote(t *turn) {
	owner := t.asked[t.call().slot].owner
	o := &t.s.owners[owner]
	if o.mu != 0 {
		t.waits = true
		return
	}
	o.slots &^= 1 << t.call().slot
	t.say("takes the slot off the owner's list")
	t.to(releaseStore)
}

// unnoteInShard does so before it unlocks the shard.
func unnoteInShard(t *turn) {
	if t.call().verb == release {
		o := &t.s.owners[t.asked[t.call().slot].owner]
		if !t.lockOwner(o) {
			return
		}
		t.say("takes the slot off the owner's list, under the owner's lock")
		o.slots &^= 1 << t.call().slot
		t.unlock(&o.mu)
	}
	t.dropUnlock()
}
