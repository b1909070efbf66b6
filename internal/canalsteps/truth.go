package canalsteps

import "fmt"

// rule is something that must hold in every state or at every step.
type rule uint8

const (
	neverOver       rule = iota // nobody gets a slot when its limit would be exceeded
	neverUnder                  // nobody is told full when there was room
	rightOrdinal                // a grant says how many are held with it
	rightCount                  // the count is what is held, in the one entry of the key
	oneLiveEntry                // a key has one entry that is not gone, at most
	rightTable                  // the table is right, and what is in it is not gone, whenever the shard is not locked
	freedOnce                   // each slot is freed once
	nothingAfterEnd             // an owner that has ended gets nothing
	endFreesAll                 // nothing is held by an owner whose Close has returned
	toldTruth                   // what is told is true
	lockOrder                   // an owner is locked before a shard
	nobodyStuck                 // somebody can go on, until all are finished
	noCircle                    // nobody goes on for ever
	nothingLeft                 // at the end nothing is in use, and at most as many entries as may are idle
	rules
)

var ruleNames = [rules]string{
	neverOver: "never over", neverUnder: "never under", rightOrdinal: "right ordinal", rightCount: "right count",
	oneLiveEntry:    "one entry",
	rightTable:      "right table",
	freedOnce:       "freed once",
	nothingAfterEnd: "nothing after the end",
	endFreesAll:     "the end frees all",
	toldTruth:       "what is told is true",
	lockOrder:       "order of locks",
	nobodyStuck:     "nobody is stuck",
	noCircle:        "all ends", nothingLeft: "nothing is left",
}

func (r rule) String() string { return ruleNames[r] }

type ruleSet uint16

func ignoring(all ...rule) (set ruleSet) {
	for _, r := range all {
		set |= 1 << r
	}
	return set
}

// fault is a rule that was broken, and how.
type fault struct {
	rule rule
	text string
}

func (t *turn) wrong(r rule, format string, args ...any) {
	if t.fault.text == "" && t.ignored&(1<<r) == 0 {
		t.fault = fault{r, fmt.Sprintf(format, args...)}
	}
}

// holds is how many slots of a key are really held.
func (t *turn) holds(key uint8) (n int) {
	for slot := range t.s.truth {
		if t.s.truth[slot] == reallyHeld && t.asked[slot].key == key {
			n += int(t.asked[slot].n)
		}
	}
	return n
}

// grant is the step from which on the worker holds what it asked for. The ordinal
// is what the algorithm will tell it.
func (t *turn) grant(says int) {
	c := t.call()
	if t.s.truth[c.slot] != neverHeld {
		t.wrong(freedOnce, "slot %d is granted again", c.slot)
	}
	n := t.holds(c.key) + int(c.n)
	if n > t.limit() {
		t.wrong(neverOver, "granted with a limit of %d, and now %d are held", t.limit(), n)
	}
	if says != n {
		t.wrong(rightOrdinal, "the ordinal is %d, and %d are held", says, n)
	}
	if o := c.owner; o > 0 && (t.w.late || t.s.owners[o].ended) {
		t.wrong(nothingAfterEnd, "granted to an owner that has ended")
	}
	t.s.truth[c.slot] = reallyHeld
}

// refuse is the step at which it is decided that the worker is told full.
func (t *turn) refuse() {
	c := t.call()
	if n := t.holds(c.key); n+int(c.n) <= t.limit() {
		t.wrong(neverUnder, "refused %d with a limit of %d, and only %d are held", c.n, t.limit(), n)
	}
}

// free is the step from which on nobody holds the slot.
func (t *turn) free(slot uint8) {
	if t.s.truth[slot] != reallyHeld {
		t.wrong(freedOnce, "slot %d is freed, and nobody holds it", slot)
	}
	t.s.truth[slot] = freed
}

// reports is the step at which somebody is told how many slots of a key are held.
func (t *turn) reports(key uint8, n int) {
	if really := t.holds(key); n != really {
		t.wrong(toldTruth, "told that %d are held, and %d are", n, really)
	}
}

// invariants hold after every step.
func (t *turn) invariants(s *shared) {
	t.s = s
	for key := range uint8(mostKeys) {
		t.oneEntry(key)
	}
	if t.s.mu == 0 {
		t.tidyTable()
	}
	for slot := range t.s.truth {
		if t.s.truth[slot] == reallyHeld && t.s.closed[t.asked[slot].owner] {
			t.wrong(endFreesAll, "slot %d is held, and the end of its owner is through", slot)
		}
	}
}

// oneEntry looks at the entries of a key: one may be not gone, with the count of
// what is held. While nothing is held there may be none.
func (t *turn) oneEntry(key uint8) {
	live, total := 0, 0
	for e := key*generations + 1; e <= (key+1)*generations; e++ {
		if x := &t.s.entries[e]; x.there && x.count != gone {
			live++
			total += int(x.count)
		}
	}
	if live > 1 {
		t.wrong(oneLiveEntry, "%c has %d entries that are not gone", keys[key], live)
	}
	if held := t.holds(key); total != held {
		t.wrong(rightCount, "the count of %c is %d, and %d are held", keys[key], total, held)
	}
}

// tidyTable looks at the table of a shard that nobody has locked.
func (t *turn) tidyTable() {
	table := &t.s.tables[t.s.cells]
	used := uint8(0)
	for _, e := range table.cells {
		if e == 0 {
			continue
		}
		used++
		if t.s.entries[e].count == gone {
			t.wrong(rightTable, "entry %d is gone and in the table", e)
		}
		if t.find(keyOf(e)) != e {
			t.wrong(rightTable, "entry %d is in the table and not found there", e)
		}
	}
	if used != t.s.size {
		t.wrong(rightTable, "the shard counts %d entries and has %d", t.s.size, used)
	}
	if used >= table.length {
		t.wrong(rightTable, "the table has no empty cell")
	}
}

// end looks at a state in which nobody can do a step.
func (t *turn) end(st *state) {
	t.s = &st.shared
	for i, program := range t.programs {
		if w := &st.workers[i]; w.at != finished {
			t.wrong(nobodyStuck, "%c waits for ever, in %s (%s)", 'A'+i, t.steps[w.at].name, program[w.call])
			return
		}
	}
	idle := uint8(0)
	for e := range t.s.entries {
		if x := &t.s.entries[e]; x.there && x.count == 0 && x.pins == 0 {
			idle++
		}
	}
	if idle > t.keep {
		t.wrong(nothingLeft, "all are finished, and %d idle entries are left, of which %d may be", idle, t.keep)
	}
	if t.stay {
		return
	}
	for slot := range t.s.truth {
		if t.s.truth[slot] == reallyHeld {
			t.wrong(nothingLeft, "all are finished, and slot %d is held for ever", slot)
		}
	}
	for _, n := range t.s.buckets {
		if n != 0 {
			t.wrong(nothingLeft, "all are finished and hold nothing, and the counters are %v", t.s.buckets)
		}
	}
}
