package canalsteps

// find is look under the lock, where nothing changes meanwhile.
func (t *turn) find(key uint8) uint8 {
	table := &t.s.tables[t.s.cells]
	for i := range table.length {
		e := table.cells[(t.hashes[key]+i)%table.length]
		if e == 0 {
			return 0
		}
		if keyOf(e) == key {
			return e
		}
	}
	return 0
}

// resize makes a table and puts it in the place of the shard's. Nobody sees the
// new one before, so this is one step.
func (t *turn) resize(length uint8) {
	if length > mostCells {
		panic("canalsteps: " + t.name + ": a table gets too large for the model")
	}
	old := &t.s.tables[t.s.cells]
	for i := 1; i <= mostTables; i++ {
		fresh := &t.s.tables[i]
		if fresh.length != 0 {
			continue
		}
		fresh.length = length
		for _, e := range old.cells[:old.length] {
			if e != 0 {
				place(fresh, e, t.hashes[:])
			}
		}
		t.s.cells = uint8(i)
		t.say("puts a table with %d cells in the place of the other", int(length))
		return
	}
	panic("canalsteps: " + t.name + ": too many tables at once for the model")
}

// place puts an entry into the first empty cell from where its hash points.
func place(t *table, e uint8, hashes []uint8) (cell int) {
	for i := range t.length {
		at := (hashes[keyOf(e)] + i) % t.length
		if t.cells[at] == 0 {
			t.cells[at] = e
			return int(at)
		}
	}
	panic("canalsteps: a table has no empty cell")
}

// unused is a number for a new entry of a key.
func (t *turn) unused(key uint8) uint8 {
	for e := key*generations + 1; e <= (key+1)*generations; e++ {
		if !t.s.entries[e].there {
			return e
		}
	}
	panic("canalsteps: " + t.name + ": too many entries of one key at once for the model")
}

// sweep is the garbage collector: what nobody can reach is as if it had never
// been, so that states don't differ by it, and its number can be used again.
func (t *turn) sweep() {
	for i := range t.s.tables {
		if t.s.tables[i].length > 0 && uint8(i) != t.s.cells && !t.looksInto(uint8(i)) {
			t.s.tables[i] = table{}
		}
	}
	for e := range t.s.entries {
		if t.s.entries[e].there && t.s.entries[e].count <= 0 && !t.reachable(uint8(e)) {
			t.s.entries[e] = entry{}
		}
	}
}

func (t *turn) looksInto(table uint8) bool {
	for i := range t.workers {
		if t.workers[i].table == table {
			return true
		}
	}
	return false
}

func (t *turn) reachable(e uint8) bool {
	for i := range t.s.tables {
		for _, in := range t.s.tables[i].cells {
			if in == e {
				return true
			}
		}
	}
	for i := range t.workers {
		if t.workers[i].entry == e || t.workers[i].victim == e {
			return true
		}
	}
	for i := range t.s.slots {
		if t.s.slots[i].of == e {
			return true
		}
	}
	for i := range t.s.handles {
		if t.s.handles[i].entry == e {
			return true
		}
	}
	return false
}
