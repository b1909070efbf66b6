package canalsteps

// These stand for slot.go.

func (t *turn) releaseSwap() {
	s := &t.s.slots[t.call().slot]
	switch {
	case s.state == held && s.of == 0:
		t.say("has no slot: not held")
		t.finish()
	case s.state == held:
		t.say("marks the slot as being freed")
		s.state = freeing
		t.w.entry, s.of = s.of, 0
		t.enter(freeAdd, releaseFreed)
	default:
		t.say("finds that the slot is not held any more")
		t.to(releaseAsk)
	}
}

func (t *turn) releaseAsk() {
	slot := t.call().slot
	byEnd := t.s.slots[slot].state >= ending
	if byEnd && !t.s.owners[t.asked[slot].owner].ended {
		t.wrong(toldTruth, "the error says that the owner has ended, which it has not")
	}
	if byEnd {
		t.say("not held: its owner has ended")
	} else {
		t.say("not held")
	}
	t.finish()
}

func (t *turn) releaseFreed() {
	if t.asked[t.call().slot].owner > 0 {
		t.to(releaseStore)
		return
	}
	t.released()
}

func (t *turn) releaseStore() {
	t.s.slots[t.call().slot].state = released
	t.say("marks the slot as released")
	t.released()
}

// released is the return of a Release that had something to free.
func (t *turn) released() {
	if t.s.truth[t.call().slot] != freed {
		t.wrong(toldTruth, "Release has returned, and the slot is not free")
	}
	t.finish()
}

func (t *turn) endSwap() {
	s := &t.s.slots[t.w.slot]
	if s.state == held {
		t.say("marks slot %d as ending", int(t.w.slot))
		s.state = ending
		t.w.entry, s.of = s.of, 0
		t.enter(freeAdd, endStore)
		return
	}
	t.say("finds that slot %d is freed by another", int(t.w.slot))
	t.to(endWait)
}

func (t *turn) endStore() {
	t.s.slots[t.w.slot].state = ended
	t.say("marks slot %d as ended", int(t.w.slot))
	t.to(endNext)
}

// endWait is the loop of Slot.end. As often as it turns, it changes nothing, so
// here it waits instead.
func (t *turn) endWait() {
	if t.s.slots[t.w.slot].state == freeing {
		t.waits = true
		return
	}
	t.say("sees that slot %d is free", int(t.w.slot))
	t.to(endNext)
}
