package table

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// compatible is the heart of R5: whether c is compatible with every claim ahead
// of it, all held ones but itself and all waiting ones before it in the queue.
//
// Three scenarios show why this is fair. (1) A reader that comes while a writer
// waits finds the writer ahead and waits behind it, so readers can't starve a
// writer. (2) Readers that come one after the other behind that writer are compatible with
// each other, so they all go when it leaves. (3) A claim on another path meets
// neither, and goes at once, however long the queue is.
func (t *Table) compatible(c *claim) bool {
	for i := range c.wanted {
		if !c.wanted[i].open() {
			return false
		}
	}
	return true
}

// open reports whether nothing ahead at p's node stands in p's way.
func (p *entry) open() bool {
	against := conflicts[p.kind]
	if p.node.heldAgainst(against, p.claim) {
		return false
	}
	if p.node.waiters != nil && p.node.waiters.waitsFor(against, p.claim) {
		return false
	}
	return p.kind != kindP || p.fits()
}

// grantable is R5 with all that else may keep a claim waiting: freezes (R18),
// resuming sessions (R19), quiet periods (R9).
func (t *Table) grantable(c *claim) bool {
	if len(c.wanted) == 0 || c.frozen || !c.session.resumed || !t.compatible(c) {
		return false
	}
	return !c.soft() || c.quiet+c.want.Quiet <= t.now
}

// restartQuietPeriods restarts the quiet periods of waiting claims that conflict with p, which was held
// and has ended (R9).
func (t *Table) restartQuietPeriods(p *entry) {
	again := func(q *entry) bool {
		if t.work++; q.claim.want.Quiet > 0 {
			q.claim.quiet = t.now
			t.reschedule(q.claim)
			t.mark(q.claim)
		}
		return true
	}
	if p.node.waiters == nil || p.node.waiters.rare == nil {
		return
	}
	a := p.node.waiters.rare
	if a.disturbedAt != t.now {
		a.disturbedAt, a.disturbed = t.now, 0
	}
	if a.disturbed.has(p.kind) {
		return // many holds that end at one instant disturb once
	}
	a.disturbed |= p.kind.set()
	eachOf(&a.soft, conflicts[p.kind], again)
	eachOf(&a.frozen, conflicts[p.kind], again)
}

// settle grants what R5 allows, ends hopeless waits (R8), refuses deadlocks (R15), and lets thieves ask
// and take (R10), again and again until nothing changes (R20).
func (t *Table) settle() {
	for {
		t.grantReady()
		if t.refuseHopeless() || t.refuseDeadlock() {
			continue
		}
		t.updateAllAsks()
		if !t.take() {
			return
		}
	}
}

// grantReady grants, in the order of the queue, claims that arrived and claims that something blocked
// which is gone. Grants only add to what is held, so one pass finds all.
func (t *Table) grantReady() {
	for len(t.touched) > 0 || len(t.arrivals) > 0 {
		t.passes++
		ready := t.ready[:0]
		add := func(c *claim) {
			if c.pass != t.passes {
				c.pass = t.passes
				ready = append(ready, c)
			}
		}
		for _, c := range t.arrivals {
			if !c.ended {
				add(c)
			}
		}
		t.arrivals = t.arrivals[:0]
		for _, n := range t.touched {
			n.candidates(n.touched, add)
			n.touched = 0
		}
		t.touched = t.touched[:0]
		if len(ready) > 1 {
			sortClaims(ready)
		}
		for i, c := range ready {
			if t.grantable(c) {
				t.grant(c)
			}
			ready[i] = nil
		}
		t.ready = ready[:0]
	}
}

// candidates calls f with the waiting claims at n that may be granted now that entries of the kinds
// taken are gone. It visits only the fronts of the queues that those kinds blocked, so its cost does
// not grow with the length of the queue.
func (n *node) candidates(taken kindSet, f func(*claim)) {
	for k := range kindP {
		if conflicts[k]&taken == 0 {
			continue
		}
		blocked := n.heldAgainst(conflicts[k], nil)
		for p := n.waiters.queues[k].head; p != nil; p = p.next {
			if n.waiters.waitsFor(conflicts[k], p.claim) {
				break
			}
			if p.claim.converting() { // its own hold may be all that is in the way
				f(p.claim)
			} else if blocked {
				break
			} else {
				f(p.claim)
			}
		}
	}
	if (conflicts[kindP]|kindP.set())&taken != 0 && !n.heldAgainst(conflicts[kindP], nil) {
		n.openPermits(f)
	}
	for k := kind(0); n.waiters.rare != nil && k < kinds; k++ {
		if conflicts[k]&taken == 0 {
			continue
		}
		for p := n.waiters.rare.soft[k].head; p != nil; p = p.next {
			f(p.claim)
		}
	}
}

// grant makes c held.
func (t *Table) grant(c *claim) {
	t.stopWaiting(c, false)
	first := len(c.held) == 0
	if !first {
		t.dropHeld(c, false)
	}
	c.held, c.wanted = c.wanted, nil
	if !first || slices.ContainsFunc(c.grants, func(g lockkeeper.Grant) bool { return g.Mode == lockkeeper.ModePermits }) {
		t.grantModes(c)
	}
	for i := range c.held {
		t.hold(&c.held[i])
	}
	for i := range c.grants {
		g := &c.grants[i]
		if g.Mode != lockkeeper.ModePermits {
			continue
		}
		n := t.nodes[g.Path]
		if g.InUse = n.units; g.Units == 1 {
			g.Slot = t.slot(n, g.Limit)
		}
	}
	t.fences++
	c.fence = t.fences
	if first {
		c.granted, c.statedIn, c.unackedEnd = t.now, 0, forever
		if c.want.MaxHold > 0 {
			c.unackedEnd = max(t.now, 1) // nothing, until an answer says since when it is held
		}
	}
	c.unconfirmed = t.meetsUnacked(c)
	c.bound, c.undone, c.text = forever, lockkeeper.NoReason, ""
	t.stopStealing(c)
	if first && c.want.Expected > 0 {
		t.announced++
	}
	t.recheckAround(c)
	if len(t.nestedIn[c.ref]) > 0 || (t.endMayDeadlock() ||
		t.blockingWaits > 0 && c.want.WriterPolicy == lockkeeper.Soft) && t.mayAffectDeadlock(c) {
		t.deadlockSuspected = true // a claim inside it may wait, or one that was ahead may now be behind it
	}
	t.recordChange(c, Granted, lockkeeper.NoReason)
	t.reschedule(c)
}

// startWaiting puts c into the queues of what it wants.
func (t *Table) startWaiting(c *claim) {
	if t.forbidden(c) != nil {
		t.setFrozen(c)
	} else {
		t.enqueue(c)
	}
	if c.steals() {
		t.startStealing(c)
	}
}

// enqueue puts c's entries into the queues of their nodes.
func (t *Table) enqueue(c *claim) {
	for i := range c.wanted {
		p := &c.wanted[i]
		if p.node.waiters == nil {
			p.node.waiters = new(waiters)
		}
		t.work += p.node.waiters.queueOf(p).insert(p)
		if p.node.waiters.rare != nil {
			p.node.waiters.rare.disturbed = 0
		}
		if p.kind == kindP && len(p.node.waiters.permits) == 2 && p.prev == nil && p.next == nil {
			t.mixedQueues++
		}
		if t.changeAt(p.node, p.kind); c.steals() {
			p.node.waiters.addThief(p)
		}
	}
	if c.queued = true; c.soft() {
		t.softWaiters++
	}
	if c.blocksHeld() {
		t.blockingWaits++
	}
	t.arrivals = append(t.arrivals, c)
	t.deadlockSuspected = t.deadlockSuspected || t.waitMayDeadlock(c)
}

// stopWaiting takes c out of the queues. If it gives up, claims behind it may be granted.
func (t *Table) stopWaiting(c *claim, givesUp bool) {
	if c.frozen {
		t.clearFrozen(c)
		return
	}
	if !c.queued {
		return // it is being granted on arrival
	}
	if c.queued = false; c.soft() {
		t.softWaiters--
	}
	if c.blocksHeld() {
		t.blockingWaits--
	}
	for i := range c.wanted {
		p := &c.wanted[i]
		p.node.waiters.queueOf(p).remove(p)
		p.node.waiters.removeThief(p)
		t.changeAt(p.node, p.kind)
		if p.kind == kindP && p.node.waiters.trim(p.limit) && len(p.node.waiters.permits) == 1 {
			t.mixedQueues--
		}
		if givesUp {
			t.touch(p.node, p.kind.set())
		}
	}
}

// dropHeld takes c's hold out of the nodes. If it ends, claims that wait for it may be granted.
func (t *Table) dropHeld(c *claim, ends bool) {
	for _, g := range c.grants {
		if g.Slot > 0 {
			t.nodes[g.Path].slots.free(g.Slot)
		}
	}
	for i := range c.held {
		p := &c.held[i]
		t.drop(p)
		if ends {
			t.touch(p.node, p.kind.set())
			t.restartQuietPeriods(p)
		}
		t.unref(p.node)
	}
	c.held = nil
}

// unwant removes what c waits for; c must have left the queues.
func (t *Table) unwant(c *claim) {
	for i := range c.wanted {
		t.unref(c.wanted[i].node)
	}
	c.wanted = nil
}
