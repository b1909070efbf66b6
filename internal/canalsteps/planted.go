package canalsteps

// Bugs that are planted into canal's algorithm, step by step.

// takeAdds adds without comparing with what was seen before.
func takeAdds(t *turn) {
	e := &t.s.entries[t.w.entry]
	seen := t.w.seen
	t.w.seen = 0
	e.count = seen + int8(t.call().n)
	t.say("writes %d: granted slot %d", int(e.count), int(t.call().slot))
	t.grant(int(seen) + int(t.call().n))
	t.w.answer = granted
	t.leave()
}

// addFirst adds before it looks whether there is room.
func addFirst(t *turn) {
	e := &t.s.entries[t.w.entry]
	if e.count == gone {
		t.say("sees that the entry is gone")
		t.w.answer = left
		t.leave()
		return
	}
	e.count += int8(t.call().n)
	if int(e.count) > t.limit() {
		t.say("makes it %d, which is too many: full", int(e.count))
		t.refuse()
		t.to(planted1)
		return
	}
	t.say("makes it %d: granted slot %d", int(e.count), int(t.call().slot))
	t.grant(int(e.count))
	t.w.answer = granted
	t.leave()
}

// takeBack takes back what addFirst has added.
func takeBack(t *turn) {
	e := &t.s.entries[t.w.entry]
	e.count -= int8(t.call().n)
	t.say("takes it back, which makes it %d", int(e.count))
	t.w.answer = full
	t.leave()
}

// takeBackAndRetry does not give up.
func takeBackAndRetry(t *turn) {
	t.s.entries[t.w.entry].count -= int8(t.call().n)
	t.say("takes it back, and tries again")
	t.to(takeLoad)
}

// takeFromGone does not know that entries may be gone.
func takeFromGone(t *turn) {
	count := t.s.entries[t.w.entry].count
	if int(count) > t.limit()-int(t.call().n) {
		t.say("sees %d in use: full, with a limit of %d", int(count), t.limit())
		t.refuse()
		t.w.answer = full
		t.leave()
		return
	}
	t.say("sees %d in use", int(count))
	t.w.seen = count
	t.to(takeSwap)
}

// takeSwapTellsLater leaves it to a second look which ordinal it tells.
func takeSwapTellsLater(t *turn) {
	e := &t.s.entries[t.w.entry]
	seen := t.w.seen
	t.w.seen = 0
	if e.count != seen {
		t.say("finds %d in use instead of %d, and looks again", int(e.count), int(seen))
		t.to(takeLoad)
		return
	}
	e.count += int8(t.call().n)
	t.say("makes it %d", int(e.count))
	t.grant(t.holds(t.call().key) + int(t.call().n)) // the truth of now, so that nothing is wrong yet
	t.w.seen = e.count
	t.to(planted1)
}

func tellLater(t *turn) {
	now := t.s.entries[t.w.entry].count
	t.say("looks for its ordinal and sees %d", int(now))
	if now != t.w.seen {
		t.wrong(rightOrdinal, "the ordinal is %d, and %d were held with it", now, t.w.seen)
	}
	t.w.seen = 0
	t.w.answer = granted
	t.leave()
}

// freeAndStay does not ask whether the shard is crowded.
func freeAndStay(t *turn) {
	t.freeAdd()
	if t.w.at == freeCrowded {
		t.w.entry = 0
		t.leave()
	}
}

// evictAtOnce removes what was idle a moment ago, used or not.
func evictAtOnce(t *turn) {
	e := &t.s.entries[t.w.victim]
	if e.count == gone {
		t.say("finds entry %d gone", int(t.w.victim))
		t.w.victim = 0
		t.leave()
		return
	}
	t.say("removes entry %d, with %d in use", int(t.w.victim), int(e.count))
	t.findHole()
}

// evictUnmarked looks whether the entry is idle, and does not mark it as gone.
func evictUnmarked(t *turn) {
	if t.s.entries[t.w.victim].count != 0 || t.find(keyOf(t.w.victim)) != t.w.victim {
		t.say("finds entry %d used again, or out of the table", int(t.w.victim))
		t.w.victim = 0
		t.leave()
		return
	}
	t.say("sees that entry %d is idle, and removes it", int(t.w.victim))
	t.findHole()
}

// evictInTwo looks first and marks then.
func evictInTwo(t *turn) {
	if t.s.entries[t.w.victim].count != 0 {
		t.say("finds entry %d used again", int(t.w.victim))
		t.w.victim = 0
		t.leave()
		return
	}
	t.say("sees that entry %d is idle", int(t.w.victim))
	t.to(planted1)
}

func markGone(t *turn) {
	t.s.entries[t.w.victim].count = gone
	t.say("marks entry %d as gone", int(t.w.victim))
	t.findHole()
}

// evictPinned does not look at the pins.
func evictPinned(t *turn) { t.to(evictSwap) }

// dropMarked marks the entry as gone under the lock, and takes it out later.
func dropMarked(t *turn) {
	if t.s.mu != 0 {
		t.waits = true
		return
	}
	e := &t.s.entries[t.w.victim]
	if e.pins > 0 || e.count != 0 {
		t.say("finds entry %d used again", int(t.w.victim))
		t.w.victim = 0
		t.leave()
		return
	}
	e.count = gone
	t.say("marks entry %d as gone, under the lock", int(t.w.victim))
	t.to(planted1)
}

func dropLater(t *turn) {
	if !t.lock(&t.s.mu) {
		return
	}
	t.say("locks the shard again to remove it")
	t.enter(evict, dropUnlock)
	t.findHole()
}

// removeWithoutMoving leaves a hole before entries that belong before it.
func removeWithoutMoving(t *turn) { t.to(removeClear) }

// enterBlindly does not look again under the lock.
func enterBlindly(t *turn) {
	if !t.lock(&t.s.mu) {
		return
	}
	t.say("locks the shard and makes an entry")
	t.enter(insert, enterUnlock)
}

// lookRefused goes on to the shard with who is refused already.
func lookRefused(t *turn) {
	t.lookCell()
	if t.w.at == acquired {
		t.to(planted1)
	}
}

// enterRefused makes an entry for it.
func enterRefused(t *turn) {
	if !t.lock(&t.s.mu) {
		return
	}
	table := &t.s.tables[t.s.cells]
	e := t.unused(t.call().key)
	place(table, e, t.hashes[:])
	t.s.entries[e] = entry{there: true}
	t.s.size++
	t.say("locks the shard and puts an entry there all the same")
	t.to(enterUnlock)
}

// unpinAndStay leaves the entry where it is.
func unpinAndStay(t *turn) {
	h := &t.s.handles[t.call().handle]
	if !h.letGo || !t.lock(&t.s.mu) {
		t.waits = true
		return
	}
	t.s.entries[h.entry].pins--
	*h = handle{}
	t.say("locks the shard and takes the pin out")
	t.to(unpinUnlock)
}

func secondLook(t *turn) {
	e := t.s.tables[t.s.cells].cells[t.w.i]
	count := int(t.s.entries[e].count)
	t.say("looks again and sees %d", count)
	t.yields(keyOf(e), count)
	t.w.i++
	t.to(allCell)
}

// unpinBesideSlots does not wait for the handle's slots.
func unpinBesideSlots(t *turn) {
	if t.s.handles[t.call().handle].letGo {
		t.unpinNow()
	} else {
		t.waits = true
	}
}

// handleWithoutKeepAlive lets the handle go when its entry has been read.
func handleWithoutKeepAlive(t *turn) {
	h := t.call().handle
	if h == 0 {
		t.to(lookTable)
		return
	}
	t.w.entry = t.s.handles[h].entry
	t.s.handles[h].letGo = true
	t.enter(takeLoad, acquired)
}

// heldWithoutKeepAlive is Handle.Held, whose handle goes before it has looked.
func heldWithoutKeepAlive(t *turn) {
	h := &t.s.handles[t.call().handle]
	t.w.entry, h.letGo = h.entry, true
	t.say("reads which entry it is, and needs the handle no more")
	t.to(planted1)
}

func heldLater(t *turn) {
	n := int(t.s.entries[t.w.entry].count)
	t.say("sees %d in use", n)
	t.reports(t.call().key, n)
	t.finish()
}

// allLooksTwice asks whether a key is in use, and then how much.
func allLooksTwice(t *turn) {
	e := t.s.tables[t.s.cells].cells[t.w.i]
	t.say("sees %d in use of the entry in cell %d", int(t.s.entries[e].count), int(t.w.i))
	if t.s.entries[e].count > 0 {
		t.to(planted1)
		return
	}
	t.w.i++
	t.to(allCell)
}
