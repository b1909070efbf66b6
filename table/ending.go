package table

import "github.com/lockkeeper/lockkeeper"

// endClaim ends c for good. If c lapsed, the reason and text of the lapse replace reason and text.
func (t *Table) endClaim(c *claim, reason lockkeeper.Reason, text string) *tombstone {
	if c.lapse != nil {
		reason, text = c.lapse.reason, c.lapse.text
	}
	t.stopStealing(c)
	t.withdrawAll(c)
	if c.holds {
		t.recordHoldTime(c, reason)
	}
	t.deadlockSuspected = t.deadlockSuspected || t.endMayDeadlock() && t.mayAffectDeadlock(c)
	tomb := t.tombOf(c)
	t.unlink(c, true)
	t.recordChange(c, Ended, reason)
	return t.recordEnd(c, tomb, reason, text)
}

// unlink removes c from its session, the nodes, the schedule and the lists, but not from the asks.
// If ends is set, claims that c blocked may be granted.
func (t *Table) unlink(c *claim, ends bool) {
	if c.want.Expected > 0 && c.holds {
		t.announced--
	}
	if c.isThief {
		t.forgetThief(c)
	}
	if c.waits {
		t.stopWaiting(c, ends)
		t.unwant(c)
	}
	if c.holds {
		t.dropHeld(c, ends)
	}
	t.unnest(c)
	t.setDue(c, forever)
	c.session().claims.remove(c.id)
	t.markThievesInside(c.ref())
}

// giveUp ends c's wait: a waiting claim ends, a conversion is undone (R14).
func (t *Table) giveUp(c *claim, reason lockkeeper.Reason, text string) {
	if c.waiting() {
		evidence := ended{blockers: t.blockers(c)}
		if reason == lockkeeper.TimedOut {
			evidence.position, evidence.eta = t.positionOf(c), t.estimate(c)
		}
		own := t.endClaim(c, reason, text).own()
		own.blockers, own.position, own.eta = evidence.blockers, evidence.position, evidence.eta
		return
	}
	t.stopStealing(c)
	t.stopWaiting(c, true)
	mode := c.wanted()[0].kind.mode()
	t.unwant(c)
	t.deadlockSuspected = t.deadlockSuspected || t.endMayDeadlock()
	t.unbind(c)
	c.setUndone(reason, text)
	c.own().refused = mode
	t.recordChange(c, Undone, reason)
	t.reschedule(c)
	t.dropWait(c)
}

// endForced ends a hold that its holder did not release. The holder counts as unacknowledged until
// it can no longer rely on the hold (R12). by labels the claim or operator that ends it, if any.
func (t *Table) endForced(c *claim, reason lockkeeper.Reason, by lockkeeper.Label) {
	until := min(c.session().promise, c.reliedUntil())
	if c.lapse != nil {
		until = 0
	}
	held := c.holds
	tomb := t.endClaim(c, reason, words(by))
	if held && until > t.now {
		tomb.own().unackedUntil, tomb.kept = until, true
		t.addUnacked(tomb)
	}
}

// words returns the text of an end: the name and the note of by.
func words(by lockkeeper.Label) string { return (&lockkeeper.Asked{Label: by}).Words() }

// tombOf makes the tombstone of c, which is about to end.
func (t *Table) tombOf(c *claim) *tombstone {
	tomb := t.newTombstone()
	tomb.id, tomb.session, tomb.want, tomb.label = c.id, c.session(), c.want, c.label
	if p := &c.entries()[0]; p.kind != kindP && !c.several() {
		tomb.path, tomb.mode = p.node.path, p.kind.mode()
	} else {
		tomb.setGrants(c.grants())
	}
	return tomb
}

// recordEnd remembers c, which ended, for one TTL of its session (R16).
func (t *Table) recordEnd(c *claim, tomb *tombstone, reason lockkeeper.Reason, text string) *tombstone {
	tomb.at, tomb.change, tomb.fence, tomb.reason, tomb.acked = t.now, c.change, c.fence, reason, bySession(reason)
	if text != "" {
		tomb.own().text = text
	}
	t.endedRoom = append(t.endedRoom, c)
	t.endedClaims = append(t.endedClaims, tomb)
	t.retain(c.session(), tomb)
	t.markEnded(tomb)
	return tomb
}

// tomb returns the tombstone of c, which ended in this step. It is the last one for c's id: another
// claim with that id, which the table does not remember, may have ended before in the same step.
func (t *Table) tomb(c *claim) *tombstone {
	for i := len(t.endedClaims) - 1; ; i-- {
		if tomb := t.endedClaims[i]; tomb.id == c.id && tomb.session == c.session() {
			return tomb
		}
	}
}

// bySession reports whether r means that the claim's own session ended it.
func bySession(r lockkeeper.Reason) bool {
	return r == lockkeeper.Released || r == lockkeeper.Yielded || r == lockkeeper.Cancelled
}

// retain keeps a tombstone for one TTL. It does not keep it for a session without a TTL, which has
// no lost answers, or for a session that knows of the end and never sends that id again.
func (t *Table) retain(s *session, tomb *tombstone) {
	if s.ttl == 0 || tomb.acked && tomb.id < s.lowestOpen {
		return
	}
	tomb.forget = tomb.at + s.ttl
	t.remember(s, tomb)
}

// raiseLowestOpen records that the client of s starts no more claims with an id below lowest, and
// forgets ended claims below it whose end the client knows (R16).
func (t *Table) raiseLowestOpen(s *session, lowest uint64) {
	if lowest <= s.lowestOpen {
		return
	}
	from := s.lowestOpen
	s.lowestOpen = lowest
	t.markSession(s)
	s.endings.forgetKnown(from, lowest, t.now)
}

// remembered returns the tombstone of an ended claim of s; nil if there is none. The table keeps it
// for one TTL, and as long as the holder may not know of the end.
func (t *Table) remembered(s *session, id uint64) *tombstone {
	if tomb := s.endings.find(s, id); tomb != nil && tomb.forget > t.now {
		return tomb
	}
	if g := t.unacked.bySession[s.id][id]; g != nil && g.unackedUntil > t.now {
		return g
	}
	return nil
}

// forget drops the tombstones of s whose time has passed.
func (t *Table) forget(s *session) {
	s.endings.expire(t.now)
	t.expireUnacked()
}

// endSession ends s and all its claims.
func (t *Table) endSession(s *session, held, waiting lockkeeper.Reason) {
	t.acknowledgeEnds(s.id, func(uint64) bool { return true })
	claims := s.byID()
	reasons := make([]lockkeeper.Reason, len(claims)) // computed before any of the claims ends
	for i, c := range claims {
		switch reasons[i] = held; {
		case c.waiting():
			reasons[i] = waiting
		case held == lockkeeper.Released:
			reasons[i] = t.releaseReason(c)
		}
	}
	for i, c := range claims {
		t.endClaim(c, reasons[i], "")
	}
	s.endings.clear(t.now) // tombstones end with their session
	t.schedule.set(&s.due, forever)
	t.setResumed(s, true) // it no longer has to resume
	delete(t.sessions, s.id)
	t.markClosed(s)
}

// releaseReason returns Released, or Yielded if a claim, an operator or the longest hold asked c to
// yield.
func (t *Table) releaseReason(c *claim) lockkeeper.Reason {
	if len(c.asks) > 0 || c.operator != nil || c.overdue {
		return lockkeeper.Yielded
	}
	return lockkeeper.Released
}
