package table

import (
	"fmt"
	"iter"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// nest adds c to the claims made in the same hold.
func (t *Table) nest(c *claim) {
	if c.nested() {
		c.own().nestedIndex = len(t.nestedIn[c.want.Inside])
		t.nestedIn[c.want.Inside] = append(t.nestedIn[c.want.Inside], c)
	}
}

// unnest is the reverse of nest.
func (t *Table) unnest(c *claim) {
	if !c.nested() {
		return
	}
	siblings := t.nestedIn[c.want.Inside]
	last := len(siblings) - 1
	siblings[c.nestedIndex] = siblings[last]
	siblings[c.nestedIndex].own().nestedIndex = c.nestedIndex
	siblings[last] = nil
	if t.nestedIn[c.want.Inside] = siblings[:last]; last == 0 {
		delete(t.nestedIn, c.want.Inside)
	}
}

// outer returns the claim inside whose hold c was made; nil if c is not nested or the table does
// not have that claim (any more, or yet).
func (t *Table) outer(c *claim) *claim {
	if !c.nested() {
		return nil
	}
	return t.find(c.want.Inside)
}

// enclosing yields the claims that c is inside of, innermost first. If they are inside of each
// other in a circle, it yields each of them, some more than once, and then stops.
func (t *Table) enclosing(c *claim) iter.Seq[*claim] {
	return func(yield func(*claim) bool) {
		for range len(t.nestedIn) { // bounds the walk: no chain has more distinct claims
			if c = t.outer(c); c == nil || !yield(c) {
				return
			}
		}
	}
}

// blocksHeld reports whether a wait of c delays the release of a hold: c's own, or one that c is
// inside of.
func (c *claim) blocksHeld() bool { return c.nested() || c.converting() }

// waitMayDeadlock reports whether the wait of c may complete a deadlock (R15). It can't if c is
// inside no claim, no claim waits for c, and no claim is inside c: that is nearly every claim.
func (t *Table) waitMayDeadlock(c *claim) bool {
	if t.blockingWaits == 0 {
		return false
	}
	if c.blocksHeld() || len(t.nestedIn[c.ref()]) > 0 {
		return true
	}
	for p := range c.pending() {
		if p.node.extra.behind(c) {
			return true
		}
	}
	return false
}

// endMayDeadlock reports whether an end or a grant can complete a deadlock. Without soft claims and
// mixed limits an end or a grant only helps waiting claims. With them, a claim may be granted
// before others that were ahead of it.
func (t *Table) endMayDeadlock() bool {
	return t.blockingWaits > 0 && (t.softWaiters > 0 || t.mixedQueues > 0)
}

// mayAffectDeadlock reports whether the start or end of c may complete a deadlock. It can't if c is
// inside no claim, no claim is inside c, and no waiting entry conflicts with c.
func (t *Table) mayAffectDeadlock(c *claim) bool {
	if c.nested() || len(t.nestedIn[c.ref()]) > 0 {
		return true
	}
	meets := func(n *node, k kind) bool { return n.extra != nil && n.extra.meets(against(k), c) }
	for _, entries := range [...][]entry{c.held(), c.wanted()} {
		for i := range entries {
			for n, k := range entries[i].places() {
				if meets(n, k) {
					return true
				}
			}
		}
	}
	return false
}

// refuseDeadlock refuses the youngest claim of a deadlock, if there is one (R15).
func (t *Table) refuseDeadlock() bool {
	if !t.deadlockSuspected {
		return false
	}
	if t.blockingWaits == 0 { // no wait delays the release of a hold
		t.deadlockSuspected = false
		return false
	}
	simulated := t.simulateReleases()
	set := simulated.deadlockSet()
	if len(set) == 0 {
		t.deadlockSuspected = false
		return false
	}
	youngest := set[0]
	for _, c := range set {
		if c.ticket > youngest.ticket {
			youngest = c
		}
	}
	c := t.sessions[youngest.session().id].claim(youngest.id)
	t.giveUp(c, lockkeeper.Deadlock, simulated.describeDeadlock(set))
	return true
}

// simulateReleases returns a scratch copy of the table after a simulation. The simulation releases
// every hold inside which no claim waits, grants waiting claims, and repeats both until nothing
// changes. A claim that still waits in the copy is stuck. The copy is valid until the next call.
func (t *Table) simulateReleases() *Table {
	if t.scratch == nil {
		t.scratch = New()
	}
	scratch := t.scratch
	scratch.resetScratch()
	scratch.now = t.now
	all := scratch.ready[:0]
	for _, s := range t.sessions { // order does not matter: sorted below
		if s.claims.length == 0 {
			continue
		}
		if scratch.sessions[s.id] == nil {
			scratch.sessions[s.id] = &session{id: s.id, resumed: true}
		}
		for _, c := range s.claims.all() {
			all = append(all, c)
		}
	}
	sortClaims(all)
	t.work += len(all)
	for _, c := range all {
		scratch.addCopy(c)
	}
	clear(all)
	for again := true; again; {
		fences := scratch.fences
		again = scratch.releaseIdle()
		scratch.grantReady()
		again = again || scratch.fences != fences
	}
	return scratch
}

// resetScratch empties a scratch copy, and keeps its memory for the next simulation.
func (t *Table) resetScratch() {
	t.recycle()
	t.resetPasses()
	for _, s := range t.sessions { // order does not matter: all of them go
		for _, c := range s.byID() {
			t.unlink(c, false)
			t.endedRoom = append(t.endedRoom, c)
		}
	}
	t.recycle()
	t.dropStep()
}

// addCopy adds a copy of c to the scratch copy t. It leaves out waits that a freeze forbids.
func (t *Table) addCopy(c *claim) {
	s := t.sessions[c.session().id]
	if c.frozen && c.waiting() {
		return
	}
	d := t.newClaim()
	d.id, d.label, d.ticket, d.fence = c.id, c.label, c.ticket, c.fence
	d.want = s.calm(c.want)
	if c.permits != nil {
		d.own().permits = c.permits
	}
	s.claims.put(d.id, d)
	t.nest(d)
	if c.holds {
		d.setEntries(t.copyEntries(d, c.held(), d.one[:0]))
		d.holds = true
		held := d.held()
		for i := range held {
			held[i].hold()
		}
	}
	if c.frozen || !c.waits {
		for i := range d.permits {
			if slot := d.permits[i].Slot; slot > 0 {
				t.nodes.find(d.permits[i].Path).slots().occupy(slot)
			}
		}
		return
	}
	if d.waits = true; d.holds {
		d.own().converts = t.copyEntries(d, c.wanted(), nil)
	} else {
		d.setEntries(t.copyEntries(d, c.wanted(), d.one[:0]))
	}
	t.addIntents(d)
	t.enqueue(d)
}

// calm returns terms of s, a session of a scratch copy, that are those of another session's claim without
// what has no effect in the copy. Claims mostly share terms, so it compares them with the latest ones.
func (s *session) calm(of *terms) *terms {
	if s.calmed != of {
		calm := *of
		calm.session = s
		calm.Quiet, calm.Steal, calm.Expected, calm.MaxHold = 0, lockkeeper.NoSteal, 0, 0
		s.terms, s.calmed = &calm, of
	}
	return s.terms
}

// copyEntries copies the entries of another claim for d.
func (t *Table) copyEntries(d *claim, entries, room []entry) []entry {
	for _, p := range entries {
		room = append(room, entry{claim: d, node: t.node(p.node.path), kind: p.kind, permits: p.permits, most: p.most})
	}
	return room
}

// releaseIdle ends the claims that don't wait and inside which no claim waits. It reports whether
// it ended any.
func (t *Table) releaseIdle() bool {
	t.passes++
	for _, s := range t.sessions { // order does not matter: a mark is a mark
		for _, c := range s.claims.all() {
			if !c.waits {
				continue
			}
			for d := c; d != nil && d.pass != t.passes; d = t.outer(d) {
				d.pass = t.passes
			}
		}
	}
	var idle []*claim
	for _, s := range t.sessions { // order does not matter: sorted below
		for _, c := range s.claims.all() {
			if c.pass != t.passes {
				idle = append(idle, c)
			}
		}
	}
	sortClaims(idle) // the order of ends decides that of the rings, and so what describeDeadlock says
	for _, c := range idle {
		t.unlink(c, true)
		t.endedRoom = append(t.endedRoom, c)
	}
	return len(idle) > 0
}

// deadlockSet returns the largest set of stuck claims of a scratch copy such that, for each member,
// a claim of the set waits for the member or for a claim that the member is inside of (R15).
func (t *Table) deadlockSet() []*claim {
	var stuck []*claim
	for _, s := range t.sessions { // order does not matter: sorted below
		for _, c := range s.claims.all() {
			if c.waits {
				stuck = append(stuck, c)
			}
		}
	}
	sortClaims(stuck)
	for {
		t.passes++
		for _, c := range stuck {
			c.obstacles(func(d *claim, _ *node, _ lockkeeper.WaitReason) bool {
				d.pass = t.passes // c waits for it
				return true
			})
		}
		needed := stuck[:0:0]
		for _, c := range stuck {
			if t.isNeeded(c) {
				needed = append(needed, c)
			}
		}
		if len(needed) == len(stuck) {
			return stuck
		}
		stuck = needed
	}
}

// isNeeded reports whether the latest pass marked c, or a claim that c is inside of.
func (t *Table) isNeeded(c *claim) bool {
	if c.pass == t.passes {
		return true
	}
	for d := range t.enclosing(c) {
		if d.pass == t.passes {
			return true
		}
	}
	return false
}

// describeDeadlock says how the claims of a deadlock wait for each other.
func (t *Table) describeDeadlock(set []*claim) string {
	var said []string
	for _, c := range set {
		c.obstacles(func(d *claim, at *node, _ lockkeeper.WaitReason) bool {
			said = append(said, fmt.Sprintf("%s waits for %s of %s", t.chain(c), at.path, d.name()))
			return false
		})
		if len(said) == lockkeeper.MaxBlockers {
			break
		}
	}
	return strings.Join(said, ", ")
}

// chain names c and the claims that it is inside of: "ann.3 inside ann.2 inside ann.1".
func (t *Table) chain(c *claim) string {
	said := c.name()
	for d := range t.enclosing(c) {
		if said += " inside " + d.name(); len(said) > lockkeeper.MaxNoteBytes {
			break
		}
	}
	return said
}

// name describes c for people by its owner and note, if it has them, and its ref:
// "ci-17 (load test, k3v9.1)".
func (c *claim) name() string {
	l := c.label.unpack()
	switch {
	case l.As != "" && l.Note != "":
		return fmt.Sprintf("%s (%s, %s)", l.As, l.Note, c.ref())
	case l.As+l.Note != "":
		return fmt.Sprintf("%s (%s)", l.As+l.Note, c.ref())
	}
	return c.ref().String()
}
