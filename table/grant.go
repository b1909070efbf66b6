package table

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// compatible is the core of R5. It reports whether c is compatible with every claim ahead of it:
// every held claim except c itself, and every waiting claim before c in the queue.
//
// Three scenarios show why this is fair. (1) A reader that arrives while a writer waits finds the
// writer ahead and waits behind it, so readers can't starve a writer. (2) Readers that arrive one
// after the other behind that writer are compatible with each other, so the table grants all of
// them when the writer releases. (3) A claim on an unrelated path conflicts with none of them, so
// the table grants it at once, however long the queue is.
func (t *Table) compatible(c *claim) bool {
	wanted := c.wanted()
	for i := range wanted {
		p := &wanted[i]
		if !p.node.open(p.kind, c) || p.kind == kindP && !p.fits() {
			return false
		}
		for above := p.node.parent; above != nil; above = above.parent {
			if !above.open(p.kind.intent(), c) {
				return false
			}
		}
	}
	return true
}

// open reports whether no hold and no claim ahead in the queue at n excludes c there by its kind k.
func (n *node) open(k kind, c *claim) bool {
	return !n.heldAgainst(conflicts[k], c) && (!n.waits() || !n.extra.waitsFor(conflicts[k], c))
}

// grantable reports whether the table may grant c now: R5 allows it, and no freeze (R18), resuming
// session (R19) or quiet period (R9) delays it.
func (t *Table) grantable(c *claim) bool {
	if !c.waits || c.frozen || !c.session().resumed || !t.compatible(c) {
		return false
	}
	return !c.soft() || c.quiet()+c.want.Quiet <= t.now
}

// restartQuietPeriods restarts the quiet periods of the claims at n, where some wait, that conflict with a
// hold that counted there as k and has just ended (R9).
func (t *Table) restartQuietPeriods(n *node, k kind) {
	again := func(q *entry) bool {
		if t.work++; q.claim.want.Quiet > 0 {
			q.claim.own().quietFrom = t.now
			t.reschedule(q.claim)
			t.mark(q.claim)
		}
		return true
	}
	a := n.extra.rare
	if a == nil {
		return
	}
	if a.disturbedAt != t.now {
		a.disturbedAt, a.disturbed = t.now, 0
	}
	if a.disturbed.has(k) {
		return // many holds that end at one instant disturb once
	}
	a.disturbed |= k.set()
	eachOf(&a.soft, conflicts[k], again)
	eachOf(&a.frozen, conflicts[k], again)
}

// settle grants claims that R5 allows, ends hopeless waits (R8), refuses deadlocks (R15), updates
// asks and performs takes (R10). It repeats all of this until nothing changes (R20).
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

// grantReady grants, in the order of the queue, arrived claims and claims whose obstacle is gone. A
// grant only adds holds, so one pass over these claims finds every grantable one.
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
			if !c.ended() {
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

// candidates calls f with the waiting claims at n that may be grantable because entries of the
// kinds gone have left n. It visits only the fronts of the queues that those kinds blocked, so its
// cost does not grow with the length of the queues.
func (n *node) candidates(gone kindSet, f func(*claim)) {
	for k := range kindP {
		first := n.extra.queues[k].first()
		if first == nil || conflicts[k]&gone == 0 {
			continue
		}
		blocked := n.heldAgainst(conflicts[k], nil)
		for p := first; p != nil; p = p.next {
			if n.extra.waitsFor(conflicts[k], p.claim) {
				break
			}
			if blocked && !p.claim.converting() { // perhaps only its own hold blocks a conversion
				break
			}
			f(p.claim)
		}
	}
	if (conflicts[kindP]|kindP.set())&gone != 0 && !n.heldAgainst(conflicts[kindP], nil) {
		n.openPermits(f)
	}
	for k := kind(0); n.extra.rare != nil && k < kinds; k++ {
		if conflicts[k]&gone == 0 {
			continue
		}
		for p := n.extra.rare.soft[k].head; p != nil; p = p.next {
			f(p.claim)
		}
	}
}

// grant makes c held, or completes its conversion.
func (t *Table) grant(c *claim) {
	t.stopWaiting(c, false)
	t.dropIntents(c)
	first := !c.holds
	if !first {
		t.dropHeld(c, false)
		c.setEntries(c.converts)
	}
	c.holds, c.waits = true, false
	if c.permits != nil {
		c.own().permits = slices.Clone(c.permits) // earlier statuses share the old ones
	}
	held := c.held()
	for i := range held {
		t.hold(&held[i])
	}
	for i := range c.permits {
		g := &c.permits[i]
		if g.Mode != lockkeeper.ModePermits {
			continue
		}
		n := t.nodes.find(g.Path)
		if g.InUse = n.units(); g.Units == 1 {
			g.Slot = t.slot(n, g.Limit)
		}
	}
	t.fences++
	c.fence = t.fences
	if first {
		c.granted = t.now
		switch {
		case c.want.MaxHold > 0:
			own := c.own()
			own.statedIn, own.unackedEnd = 0, max(t.now, 1) // no answer has stated an end yet
		case c.cold != &plain:
			c.statedIn, c.unackedEnd = 0, forever
		}
	}
	if unsure := t.meetsUnacked(c); c.unsure != unsure {
		c.own().unsure = unsure
	}
	t.unbind(c)
	c.setUndone(lockkeeper.NoReason, "")
	t.stopStealing(c)
	if first && c.want.Expected > 0 {
		t.announced++
	}
	t.recheckAround(c)
	if len(t.nestedIn[c.ref()]) > 0 || (t.endMayDeadlock() ||
		t.blockingWaits > 0 && c.want.WriterPolicy == lockkeeper.Soft) && t.mayAffectDeadlock(c) {
		t.deadlockSuspected = true // a claim inside it may wait, or one that was ahead may now be behind it
	}
	t.recordChange(c, Granted, lockkeeper.NoReason)
	t.reschedule(c)
	if c.wait != &noWait {
		t.dropWait(c)
	}
}

// unbind removes the bound of c's wait, which is over.
func (t *Table) unbind(c *claim) {
	t.setBound(c, forever)
}

// startWaiting puts c into the queues of its wanted entries, or among the frozen claims.
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

// enqueue puts c's wanted entries and intents into the queues of their nodes.
func (t *Table) enqueue(c *claim) {
	intents := c.intents()
	for i := range intents {
		t.enqueueEntry(&intents[i])
	}
	wanted := c.wanted()
	for i := range wanted {
		t.enqueueEntry(&wanted[i])
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

func (t *Table) enqueueEntry(p *entry) {
	l := p.node.needExtra()
	l.waiting++
	t.work += l.queueOf(p).insert(p)
	if l.rare != nil {
		l.rare.disturbed = 0
	}
	if p.kind == kindP && len(l.pool.limits) == 2 && p.prev == nil && p.next == nil {
		t.mixedQueues++
	}
	if t.changeAt(p.node, p.kind); p.claim.steals() {
		l.addThief(p)
	}
}

// dequeueEntry is the reverse of enqueueEntry. If the claim gives up, claims behind it may be granted.
func (t *Table) dequeueEntry(p *entry, givesUp bool) {
	l := p.node.extra
	l.waiting--
	l.queueOf(p).remove(p)
	l.removeThief(p)
	t.changeAt(p.node, p.kind)
	if p.kind == kindP && l.trim(p.limit()) && len(l.pool.limits) == 1 {
		t.mixedQueues--
	}
	if givesUp {
		t.touch(p.node, p.kind.set())
	}
}

// stopWaiting removes c from the queues. If it gives up, claims behind it may be granted.
func (t *Table) stopWaiting(c *claim, givesUp bool) {
	if c.frozen {
		t.clearFrozen(c)
		return
	}
	if !c.queued {
		return // the table grants it on arrival, before it queues
	}
	if c.queued = false; c.soft() {
		t.softWaiters--
	}
	if c.blocksHeld() {
		t.blockingWaits--
	}
	intents := c.intents()
	for i := range intents {
		t.dequeueEntry(&intents[i], givesUp)
	}
	wanted := c.wanted()
	for i := range wanted {
		t.dequeueEntry(&wanted[i], givesUp)
	}
}

// dropHeld removes c's hold from the nodes. If the hold ends, claims that wait for it may be
// granted.
func (t *Table) dropHeld(c *claim, ends bool) {
	for _, g := range c.permits {
		if g.Slot > 0 {
			t.nodes.find(g.Path).slots().free(g.Slot)
		}
	}
	held := c.held()
	for i := range held {
		p := &held[i]
		t.drop(p)
		if ends {
			for n, k := range p.places() {
				if n.waits() {
					t.touch(n, k.set())
					t.restartQuietPeriods(n, k)
				}
			}
		}
		t.unref(p.node)
	}
	c.holds = false
}

// unwant clears c's wanted entries and intents; c must have left the queues.
func (t *Table) unwant(c *claim) {
	t.dropIntents(c)
	wanted := c.wanted()
	for i := range wanted {
		t.unref(wanted[i].node)
	}
	if c.waits = false; c.converts != nil {
		c.own().converts = nil
	}
}
