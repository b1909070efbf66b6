package canalsteps

// These stand for manager.go, and look of shard.go.

func (t *turn) acquireStart() {
	if t.call().maxPer > 0 {
		t.to(viewLoad)
	} else {
		t.to(acquireSeen)
	}
}

// viewLoad is the caller's: it asks how many resources there are, before it calls.
func (t *turn) viewLoad() {
	t.w.limit = t.call().maxPer * t.s.resources
	t.say("sees %d resources, so a limit of %d", int(t.s.resources), t.limit())
	t.to(acquireSeen)
}

func (t *turn) acquireSeen() {
	switch o := t.call().owner; {
	case o == 0:
		t.to(acquireFind)
	case t.contexts[o]:
		t.to(ownContext)
	default:
		t.to(ownLock)
	}
}

func (t *turn) acquireFind() {
	if h := t.call().handle; h > 0 {
		t.w.entry = t.s.handles[h].entry
		t.enter(takeLoad, acquired)
	} else {
		t.to(lookTable)
	}
}

func (t *turn) lookTable() {
	t.w.table = t.s.cells
	t.say("takes the table with %d cells", int(t.s.tables[t.w.table].length))
	t.to(lookCell)
}

func (t *turn) lookCell() {
	table := &t.s.tables[t.w.table]
	at := (t.hashes[t.call().key] + t.w.i) % table.length
	e := table.cells[at]
	switch {
	case e != 0 && keyOf(e) == t.call().key:
		t.say("finds its entry in cell %d", int(at))
		t.w.table, t.w.i = 0, 0
		t.w.entry = e
		t.enter(takeLoad, acquireLooked)
		return
	case e != 0 && t.w.i+1 < table.length:
		t.say("sees another entry in cell %d", int(at))
		t.w.i++
		return
	case e != 0:
		t.say("sees another entry in cell %d, the last one", int(at))
	default:
		t.say("sees nothing in cell %d", int(at))
	}
	t.w.table, t.w.i = 0, 0
	t.missed()
}

// missed is where look has found no entry, or one that is gone.
func (t *turn) missed() {
	if int(t.call().n) > t.limit() {
		t.say("has a limit of %d, which is too small whatever is in use: full", t.limit())
		t.refuse()
		t.w.answer = full
		t.to(acquired)
		return
	}
	t.to(enterLock)
}

// acquireLooked is where an entry that look found was asked for slots.
func (t *turn) acquireLooked() {
	if t.w.answer == left {
		t.w.entry, t.w.answer = 0, none
		t.missed()
	} else {
		t.to(acquired)
	}
}

func (t *turn) acquired() {
	if t.w.answer == left { // a handle's entry: Handle.acquire takes it for full
		t.refuse()
		t.w.answer = full
	}
	if t.w.answer == granted {
		t.s.slots[t.call().slot].of = t.w.entry
	}
	t.w.entry = 0
	if t.call().owner > 0 {
		t.to(ownNote)
	} else {
		t.answered()
	}
}

// answered is the return of the whole call.
func (t *turn) answered() {
	if got := t.s.truth[t.call().slot] != neverHeld; got != (t.w.answer == granted) {
		t.wrong(toldTruth, "the answer does not say what was done")
	}
	t.finish()
}

func (t *turn) heldLock() {
	if !t.lock(&t.s.mu) {
		return
	}
	t.w.entry = t.find(t.call().key)
	if t.w.entry != 0 {
		t.say("locks the shard and finds the entry")
		t.to(heldLoad)
		return
	}
	t.say("locks the shard and finds no entry")
	t.reports(t.call().key, 0)
	t.to(heldUnlock)
}

func (t *turn) heldLoad() {
	count := int(t.s.entries[t.w.entry].count)
	t.say("sees %d in use", count)
	t.reports(t.call().key, count)
	t.w.entry = 0
	t.to(heldUnlock)
}

func (t *turn) heldUnlock() {
	t.unlock(&t.s.mu)
	t.say("unlocks the shard")
	t.finish()
}

func (t *turn) allLock() {
	if !t.lock(&t.s.mu) {
		return
	}
	t.say("locks the shard")
	t.to(allCell)
}

func (t *turn) allCell() {
	table := &t.s.tables[t.s.cells]
	for ; t.w.i < table.length; t.w.i++ {
		if table.cells[t.w.i] != 0 {
			t.to(allLoad)
			return
		}
	}
	t.to(allUnlock)
}

func (t *turn) allLoad() {
	e := t.s.tables[t.s.cells].cells[t.w.i]
	count := int(t.s.entries[e].count)
	t.say("sees %d in use of the entry in cell %d", count, int(t.w.i))
	if count > 0 {
		t.yields(keyOf(e), count)
	}
	t.w.i++
	t.to(allCell)
}

// yields is what All tells of a key that it has found in use.
func (t *turn) yields(key uint8, count int) {
	if count == 0 {
		t.wrong(toldTruth, "told of a key in use, of which nothing is held")
	}
	t.reports(key, count)
}

func (t *turn) allUnlock() {
	t.unlock(&t.s.mu)
	t.say("unlocks the shard")
	t.finish()
}

// resourcesChange is the application's: resources come or go.
func (t *turn) resourcesChange() {
	t.s.resources = t.call().resources
	t.say("changes the number of resources to %d", int(t.s.resources))
	t.finish()
}
