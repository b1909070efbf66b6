package canalsteps

// These stand for shard.go, but for look without the lock. What is read under the
// lock, and nobody else can change meanwhile, is read in the same step.

func (t *turn) enterLock() {
	if !t.lock(&t.s.mu) {
		return
	}
	if e := t.find(t.call().key); e != 0 {
		t.say("locks the shard and finds its entry")
		t.w.entry = e
		t.enter(takeLoad, enterUnlock)
		return
	}
	t.say("locks the shard and finds no entry")
	t.enter(insert, enterUnlock)
}

func (t *turn) enterUnlock() {
	t.unlock(&t.s.mu)
	t.say("unlocks the shard")
	t.to(acquired)
}

func (t *turn) pinLock() {
	if !t.lock(&t.s.mu) {
		return
	}
	if e := t.find(t.call().key); e != 0 {
		t.say("locks the shard and finds its entry")
		t.w.entry = e
		t.to(pinUnlock)
		return
	}
	t.say("locks the shard and finds no entry")
	t.enter(insert, pinUnlock)
}

func (t *turn) pinUnlock() {
	t.s.entries[t.w.entry].pins++
	t.s.handles[t.call().handle] = handle{entry: t.w.entry}
	t.say("pins the entry and unlocks the shard")
	t.unlock(&t.s.mu)
	t.finish()
}

func (t *turn) unpinLock() {
	if t.s.handles[t.call().handle].letGo && !t.slotsOf(t.call().handle) {
		t.unpinNow()
	} else {
		t.waits = true // the cleanup runs when the handle can't be reached
	}
}

// slotsOf says that slots of a handle are held: from them it can be reached, and
// by KeepAlive until they are free.
func (t *turn) slotsOf(handle uint8) bool {
	for slot := range t.s.truth {
		if t.s.truth[slot] == reallyHeld && t.asked[slot].handle == handle {
			return true
		}
	}
	return false
}

func (t *turn) unpinNow() {
	if !t.lock(&t.s.mu) {
		return
	}
	h := &t.s.handles[t.call().handle]
	e := h.entry
	*h = handle{}
	t.s.entries[e].pins--
	t.say("locks the shard and takes the pin out: %d pins are left", int(t.s.entries[e].pins))
	if t.s.size > t.keep {
		t.w.victim = e
		t.enter(evict, unpinUnlock)
	} else {
		t.to(unpinUnlock)
	}
}

func (t *turn) unpinUnlock() {
	t.unlock(&t.s.mu)
	t.say("unlocks the shard")
	t.finish()
}

func (t *turn) dropLock() {
	if !t.lock(&t.s.mu) {
		return
	}
	t.say("locks the shard")
	t.enter(evict, dropUnlock)
}

func (t *turn) dropUnlock() {
	t.unlock(&t.s.mu)
	t.say("unlocks the shard")
	t.leave()
}

func (t *turn) insert() {
	if t.s.size >= t.keep {
		t.s.hand = (t.s.hand + 1) % (2 * mostCells)
		if t.s.hand%2 == 0 {
			t.to(makeRoom)
			return
		}
	}
	t.to(insertSize)
}

func (t *turn) makeRoom() {
	for t.w.i < t.rounds {
		table := &t.s.tables[t.s.cells]
		e := table.cells[(t.s.hand/2*t.rounds+t.w.i)%table.length]
		t.w.i++
		if e != 0 {
			t.w.victim = e
			t.enter(evict, makeRoom)
			return
		}
	}
	t.w.i = 0
	t.to(insertSize)
}

func (t *turn) insertSize() {
	t.s.size++
	t.say("counts its entry: %d in the shard", int(t.s.size))
	length := t.s.tables[t.s.cells].length
	most := length / 2
	if t.dense {
		most = length * 3 / 4
	}
	if t.s.size > most {
		t.to(insertGrow)
	} else {
		t.to(insertPlace)
	}
}

func (t *turn) insertGrow() {
	t.resize(t.s.tables[t.s.cells].length * 2)
	t.to(insertPlace)
}

// insertPlace puts a new entry where others see it, with its slots taken.
func (t *turn) insertPlace() {
	e := t.unused(t.call().key)
	cell := place(&t.s.tables[t.s.cells], e, t.hashes[:])
	t.s.entries[e] = entry{there: true, count: int8(t.call().n)}
	t.w.entry = e
	if t.call().verb == acquire {
		t.say("puts a new entry into cell %d: granted slot %d", cell, int(t.call().slot))
		t.grant(int(t.call().n))
		t.w.answer = granted
	} else {
		t.say("puts a new entry into cell %d", cell)
	}
	t.leave()
}

func (t *turn) evict() {
	if t.s.entries[t.w.victim].pins > 0 {
		t.w.victim = 0
		t.leave()
	} else {
		t.to(evictSwap)
	}
}

func (t *turn) evictSwap() {
	e := &t.s.entries[t.w.victim]
	if e.count != 0 {
		t.say("finds entry %d used again, or gone: it stays as it is", int(t.w.victim))
		t.w.victim = 0
		t.leave()
		return
	}
	e.count = gone
	t.say("marks entry %d as gone", int(t.w.victim))
	t.findHole()
}

// findHole leads into remove, at the cell of the entry that leaves.
func (t *turn) findHole() {
	table := &t.s.tables[t.s.cells]
	start := t.hashes[keyOf(t.w.victim)]
	for i := range table.length {
		if at := (start + i) % table.length; table.cells[at] == t.w.victim {
			t.w.hole = at
			t.to(removeNext)
			return
		}
	}
	t.wrong(noCircle, "remove looks for an entry that is not in the table")
}

// follower is the cell whose entry remove moves into the hole, if there is one.
func (t *turn) follower() (from uint8, any bool) {
	table := &t.s.tables[t.s.cells]
	mask := table.length - 1
	for i := (t.w.hole + 1) & mask; table.cells[i] != 0 && i != t.w.hole; i = (i + 1) & mask {
		next := t.hashes[keyOf(table.cells[i])]
		if (i-next)&mask >= (i-t.w.hole)&mask {
			return i, true
		}
	}
	return 0, false
}

func (t *turn) removeNext() {
	if _, any := t.follower(); any {
		t.to(removeMove)
	} else {
		t.to(removeClear)
	}
}

func (t *turn) removeMove() {
	from, _ := t.follower()
	table := &t.s.tables[t.s.cells]
	table.cells[t.w.hole] = table.cells[from]
	t.say("moves the entry of cell %d to cell %d", int(from), int(t.w.hole))
	t.w.hole = from
	t.to(removeNext)
}

func (t *turn) removeClear() {
	t.s.tables[t.s.cells].cells[t.w.hole] = 0
	t.say("empties cell %d", int(t.w.hole))
	t.w.hole = 0
	t.to(evictSize)
}

// evictSize counts the entry out. In canal, tables shrink when less than an eighth
// is in use; here when less than half is, so that small ones do.
func (t *turn) evictSize() {
	t.s.size--
	t.w.victim = 0
	t.say("counts the entry out: %d in the shard", int(t.s.size))
	if length := t.s.tables[t.s.cells].length; length > t.smallest && t.s.size < length/2 {
		t.to(evictShrink)
	} else {
		t.leave()
	}
}

func (t *turn) evictShrink() {
	t.resize(t.s.tables[t.s.cells].length / 2)
	t.leave()
}
