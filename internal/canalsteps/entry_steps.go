package canalsteps

// These stand for entry.go.

func (t *turn) takeLoad() {
	count := int(t.s.entries[t.w.entry].count)
	switch {
	case count == gone:
		t.say("sees that the entry is gone")
		t.w.answer = left
		t.leave()
	case count > t.limit()-int(t.call().n):
		t.say("sees %d in use: full, with a limit of %d", count, t.limit())
		t.refuse()
		t.w.answer = full
		t.leave()
	default:
		t.say("sees %d in use", count)
		t.w.seen = int8(count)
		t.to(takeSwap)
	}
}

func (t *turn) takeSwap() {
	e := &t.s.entries[t.w.entry]
	seen := t.w.seen
	t.w.seen = 0
	if e.count != seen {
		t.say("finds %d in use instead of %d, and looks again", int(e.count), int(seen))
		t.to(takeLoad)
		return
	}
	e.count += int8(t.call().n)
	t.say("makes it %d: granted slot %d", int(e.count), int(t.call().slot))
	t.grant(int(seen) + int(t.call().n))
	t.w.answer = granted
	t.leave()
}

// freeing is the slot that the worker frees: that of its release, or the one that
// the end of an owner is at.
func (t *turn) freeing() uint8 {
	if t.call().verb == release {
		return t.call().slot
	}
	return t.w.slot
}

// freeAdd is also the addition of Handle.free, which does not ask whether the shard
// is crowded.
func (t *turn) freeAdd() {
	e := &t.s.entries[t.w.entry]
	e.count -= int8(t.asked[t.freeing()].n)
	t.say("frees slot %d: %d in use", int(t.freeing()), int(e.count))
	t.free(t.freeing())
	if e.count == 0 && t.asked[t.freeing()].handle == 0 {
		t.to(freeCrowded)
		return
	}
	t.w.entry = 0
	t.leave()
}

func (t *turn) freeCrowded() {
	if t.s.size > t.keep {
		t.say("sees that the shard has %d entries, of which %d may be idle: its own goes", int(t.s.size), int(t.keep))
		t.w.victim = t.w.entry
		t.to(dropLock)
	} else {
		t.say("sees that the shard has %d entries, of which %d may be idle", int(t.s.size), int(t.keep))
		t.leave()
	}
	t.w.entry = 0
}
