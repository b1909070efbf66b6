package table

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// endClaim ends c for good: for that reason, or for the reason of its lapse.
func (t *Table) endClaim(c *claim, reason lockkeeper.Reason, text string) *tombstone {
	if c.lapse != nil {
		reason, text = c.lapse.reason, c.lapse.text
	}
	t.stopStealing(c)
	t.withdrawAll(c)
	if len(c.held) > 0 {
		t.recordHoldTime(c, reason)
	}
	t.deadlockSuspected = t.deadlockSuspected || t.endMayDeadlock() && t.mayAffectDeadlock(c)
	t.unlink(c, true)
	c.ended, c.reason, c.text = true, reason, text
	t.recordChange(c, Ended, reason)
	return t.recordEnd(c)
}

// unlink takes c out of everything that knows it but its asks. If it ends, those
// whom it stood in the way of may go.
func (t *Table) unlink(c *claim, ends bool) {
	if c.want.Expected > 0 && len(c.held) > 0 {
		t.announced--
	}
	if c.isThief {
		t.forgetThief(c)
	}
	if len(c.wanted) > 0 {
		t.stopWaiting(c, ends)
		t.unwant(c)
	}
	if len(c.held) > 0 {
		t.dropHeld(c, ends)
	}
	t.unnest(c)
	t.schedule.set(&c.due, forever)
	delete(c.session.claims, c.ref.ID)
	t.markThievesInside(c.ref)
}

// giveUp ends c's wait: a waiting claim ends, a conversion is undone (R14).
func (t *Table) giveUp(c *claim, reason lockkeeper.Reason, text string) {
	if c.waiting() {
		evidence := tombstone{blockers: t.blockers(c)}
		if reason == lockkeeper.TimedOut {
			evidence.position, evidence.eta = t.positionOf(c), t.estimate(c)
		}
		tomb := t.endClaim(c, reason, text)
		tomb.blockers, tomb.position, tomb.eta = evidence.blockers, evidence.position, evidence.eta
		return
	}
	t.stopStealing(c)
	t.stopWaiting(c, true)
	t.unwant(c)
	t.deadlockSuspected = t.deadlockSuspected || t.endMayDeadlock()
	c.bound, c.undone, c.text = forever, reason, text
	t.recordChange(c, Undone, reason)
	t.reschedule(c)
}

// endForced ends a hold that its holder did not release. The holder is unacknowledged as long as it may
// rely on the hold (R12). by labels the claim or operator that ends it, if any.
func (t *Table) endForced(c *claim, reason lockkeeper.Reason, by lockkeeper.Label) {
	until := min(c.session.promise, c.reliedUntil())
	if c.lapse != nil {
		until = 0
	}
	held := len(c.held) > 0
	tomb := t.endClaim(c, reason, words(by))
	if held && until > t.now {
		tomb.unackedUntil, tomb.kept = until, true
		t.addUnacked(tomb)
	}
}

// words returns the text of an end: the name and the note of by.
func words(by lockkeeper.Label) string { return (&lockkeeper.Asked{Label: by}).Words() }

// recordEnd remembers c, which ended, for one TTL of its session (R16).
func (t *Table) recordEnd(c *claim) *tombstone {
	tomb := t.newTombstone()
	*tomb = tombstone{
		ref:      c.ref,
		inside:   c.want.Inside,
		at:       t.now,
		revision: c.want.Revision,
		change:   c.change,
		fence:    c.fence,
		reason:   c.reason,
		text:     c.text, grants: c.grants, label: c.want.Label, priority: c.want.Priority,
		acked: bySession(c.reason),
	}
	c.tomb = tomb
	t.endedRoom = append(t.endedRoom, c)
	t.endedClaims = append(t.endedClaims, tomb)
	t.retain(c.session, tomb)
	t.markEnded(tomb)
	return tomb
}

// bySession reports whether a claim that ended so was ended by its own session.
func bySession(r lockkeeper.Reason) bool {
	return r == lockkeeper.Released || r == lockkeeper.Yielded || r == lockkeeper.Cancelled
}

// retain keeps a tombstone for a TTL; a session without TTL has no lost answers,
// and one that knows of the end and sends the claim no more needs none.
func (t *Table) retain(s *session, tomb *tombstone) {
	if s.ttl == 0 || tomb.acked && tomb.ref.ID < s.lowestOpen {
		return
	}
	tomb.forget = tomb.at + s.ttl
	s.remember(tomb)
}

func (s *session) remember(tomb *tombstone) {
	tomb.kept = true
	if s.ended == nil {
		s.ended = make(map[uint64]*tombstone)
	}
	s.ended[tomb.ref.ID] = tomb
	s.endings = append(s.endings, tomb)
}

// raiseLowestOpen notes that s begins no claim with an id below answered any more, and forgets
// what was remembered only for such (R16).
func (t *Table) raiseLowestOpen(s *session, answered uint64) {
	if answered <= s.lowestOpen {
		return
	}
	from := s.lowestOpen
	s.lowestOpen = answered
	t.markSession(s)
	if answered-from <= uint64(len(s.ended)) {
		for id := from; id < answered; id++ {
			t.forgetKnown(s, s.ended[id])
		}
	} else {
		for id, tomb := range s.ended { // order does not matter: each is forgotten by itself
			if id < answered {
				t.forgetKnown(s, tomb)
			}
		}
	}
	s.dropIdle(t.now)
}

// dropIdle removes ends that were forgotten early, once they are more than half of all.
func (s *session) dropIdle(now time.Duration) {
	if s.idle > len(s.endings)/2 {
		s.endings = slices.DeleteFunc(s.endings, func(tomb *tombstone) bool { return tomb.forget <= now })
		s.idle = 0
	}
}

// forgetKnown forgets an end of which its session knows; tomb may be nil.
func (t *Table) forgetKnown(s *session, tomb *tombstone) {
	if tomb != nil && tomb.acked {
		delete(s.ended, tomb.ref.ID)
		tomb.forget = t.now
		s.idle++
	}
}

// remembered is what is remembered of a claim of s that ended: for a TTL, and as
// long as its holder may not know; nil if nothing.
func (t *Table) remembered(s *session, id uint64) *tombstone {
	if tomb := s.ended[id]; tomb != nil && tomb.forget > t.now {
		return tomb
	}
	if g := t.unacked.bySession[s.id][id]; g != nil && g.unackedUntil > t.now {
		return g
	}
	return nil
}

// forget drops the tombstones of s whose time has passed.
func (t *Table) forget(s *session) {
	n := 0
	for n < len(s.endings) && s.endings[n].forget <= t.now {
		if s.ended[s.endings[n].ref.ID] == s.endings[n] {
			delete(s.ended, s.endings[n].ref.ID)
		}
		n++
	}
	clear(s.endings[:n])
	s.endings = s.endings[n:]
	t.expireUnacked()
}

// endSession ends s and all its claims.
func (t *Table) endSession(s *session, held, waiting lockkeeper.Reason) {
	t.acknowledgeEnds(s.id, func(uint64) bool { return true })
	claims := s.byID()
	reasons := make([]lockkeeper.Reason, len(claims)) // by what stands before any of them ends
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
	for _, tomb := range s.endings {
		tomb.forget = t.now // what is remembered of ended claims goes with their session
	}
	t.schedule.set(&s.due, forever)
	t.setResumed(s, true) // it no longer has to resume
	delete(t.sessions, s.id)
	t.markClosed(s)
}

// releaseReason is released, or yielded if c was asked to.
func (t *Table) releaseReason(c *claim) lockkeeper.Reason {
	if len(c.asks) > 0 || c.operator != nil || c.overdue {
		return lockkeeper.Yielded
	}
	return lockkeeper.Released
}
