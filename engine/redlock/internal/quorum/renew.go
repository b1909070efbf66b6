package quorum

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Renew begins [lockkeeper.Engine.Renew].
func (p *Party) Renew(now time.Duration, k lockkeeper.Key) CallID {
	call := p.begin(call{at: now})
	s, err := p.find(now, k)
	if err != nil {
		p.answer(Answer{Call: call, Err: err})
		return call
	}
	s.renewals = append(s.renewals, call)
	for i := range s.seats {
		s.seats[i].renew = true
	}
	p.afterReply(s, now)
	return call
}

// checkLeases answers Renew and Attach. An answer needs a majority of servers that renewed after the
// call began. It waits a little for further servers if a hold has too few votes at these; then it
// states the time that the hold really has.
func (p *Party) checkLeases(s *session, now time.Duration) {
	kept := s.renewals[:0]
	for _, id := range s.renewals {
		c, waits := p.calls[id]
		if !waits {
			continue
		}
		if s.over || !p.checkLease(s, id, c, now) {
			kept = append(kept, id)
		}
	}
	s.renewals = kept
	if len(kept) == 0 {
		s.patience = never
	}
}

// checkLease answers one call, and reports whether it did.
func (p *Party) checkLease(s *session, id CallID, c call, now time.Duration) bool {
	fresh, due := 0, 0
	for i := range s.seats {
		if s.seats[i].renewedFrom >= c.at && s.seats[i].joined {
			fresh++
		} else if p.up[i] && (s.seats[i].renewing || s.seats[i].restoring || s.seats[i].attaching) {
			due++
		}
	}
	if fresh < p.majority {
		return false
	}
	end, settled := p.leaseEnd(s, c, now)
	if !settled && (s.patience == never || now < s.patience) {
		if s.patience == never {
			s.patience = now + min(s.ttl/8, 300*time.Millisecond)
		}
		if due > 0 || s.restoring() {
			return false
		}
	}
	if end <= now {
		s.patience = now + retryPause
		return false // the session's timer ends it, unless further servers renew
	}
	s.clientEnd = max(s.clientEnd, end) // the client may not get this answer
	for _, cl := range s.inOrder() {
		p.updateAsk(cl, now) // an ask at a few servers may end before that
	}
	p.answer(Answer{Call: id, Lease: p.leaseOf(s, c, end, now)})
	return true
}

func (s *session) restoring() bool {
	for i := range s.seats {
		if s.seats[i].restoring {
			return true
		}
	}
	return false
}

// leaseEnd returns the end that a lease can state,
//
//	end = min(deadline of the session, deadlines of all its holds)
//
// and whether that is all that the call can expect: its whole TTL, and every vote decided. A hold
// that has lost its majority keeps the end that the client knows, until a Restore brings it back.
func (p *Party) leaseEnd(s *session, c call, now time.Duration) (end time.Duration, settled bool) {
	whole := max(c.at+s.ttl, s.clientEnd)
	end, settled = min(p.deadline(s), whole), true
	for _, cl := range s.inOrder() {
		switch {
		case cl.phase == held && cl.lapse == lockkeeper.NoReason:
			promised, asked := p.holdDeadline(cl)
			switch {
			case promised <= now:
				promised = s.clientEnd // its servers keep what they promised until then
			case !cl.asksEndAt(asked):
				promised = asked // a promise of the servers that would be left; the ends of asks are stated as such
			}
			end = min(end, promised)
		case cl.phase == waiting && cl.adopted && cl.counted() > 0 && !cl.answered:
			settled = false
		}
	}
	return end, settled && end >= min(p.deadline(s), whole)
}

// leaseOf returns the lease for a call: of Attach with all claims, else with those that have an end
// or are asked to yield, and those that changed within the last TTL.
func (p *Party) leaseOf(s *session, c call, end, now time.Duration) lockkeeper.Lease {
	s.lease = p.base.next(now)
	l := lockkeeper.Lease{
		Key:    lockkeeper.Key{Session: s.id, Epoch: s.epoch},
		TTL:    end - c.at,
		Number: s.lease,
		EndsAt: p.base.ends(end),
	}
	for _, cl := range s.inOrder() {
		if c.attach {
			cl.answered = true
		}
		recent := now-cl.changed <= s.ttl
		ends := cl.phase == held && (cl.asked != nil || cl.end() != never)
		if !recent && !ends && (cl.phase == ended || !c.attach) {
			continue
		}
		if cl.phase == held {
			p.stateAsk(cl, s.lease)
		}
		l.Claims = append(l.Claims, p.status(cl, now))
	}
	s.forgetOld(p, now)
	return l
}

// pushSeats sends what is due for the session to each server.
func (p *Party) pushSeats(s *session, now time.Duration) {
	acks := s.acks
	s.acks = false
	for i := range s.seats {
		seat := &s.seats[i]
		if !p.up[i] || s.over {
			continue
		}
		if seat.absent && !seat.attaching {
			s.retryAt = min(s.retryAt, p.restore(s, i, now))
		}
		if seat.other != 0 || seat.absent && seat.attaching {
			continue
		}
		// One that lacks the session is asked, too, while no Restore is possible: only its answer tells
		// that another party has the session there.
		if seat.renew && !seat.renewing && !seat.restoring && now < s.limit() {
			seat.renew, seat.renewing = false, true
			p.send(i, s, nil, Request{Kind: Renew})
		}
		if acks && p.usable(s, i) && p.pushAcks(s, i) && seat.acking {
			s.acks = true
		}
	}
}

// Bounds of Restore.
const (
	restorePause  = 500 * time.Millisecond // between two at one server
	restoreClaims = 128                    // in one request; the next one has the others
)

// belowMark reports whether c goes on below the session's low-water mark. A server that lacks it makes it for
// a Restore alone: a Claim below the mark may be late (R16).
func (c *claim) belowMark() bool { return c.id < c.session.lowestOpen && !c.wantsTry() }

// restore sets the session at a server that lacks it, or its claims that the server lacks (condition
// 3). It is never sent after the deadline that the client knows. restore returns when to try again;
// never if it is on its way, or not possible. While a Renew asks whether the server has the session, its
// answer comes first: NoSession would make void what the Restore does.
func (p *Party) restore(s *session, i int, now time.Duration) (retryAt time.Duration) {
	seat := &s.seats[i]
	busy := seat.restoring || !seat.joined && seat.renewing
	if busy || now >= s.limit() || now >= p.deadline(s) || seat.other != 0 || !p.up[i] {
		return never
	}
	if next := seat.restored + restorePause; seat.restored != 0 && now < next {
		return next
	}
	if next := seat.absentAt + slowServer; seat.absent && now < next && s.renewingBeside(i) {
		return next
	}
	r := RestoreRequest{TTL: micros(s.ttl), To: p.to, Label: s.label}
	for _, c := range s.inOrder() {
		b := &c.at[i]
		lacks := c.phase != ended && c.lapse == lockkeeper.NoReason && !b.ended && !b.claiming &&
			(!b.known && !b.sent || seat.absent)
		if !lacks || len(r.Claims) == restoreClaims {
			continue
		}
		b.sent, b.askedAt = true, p.number+1
		r.Claims = append(r.Claims, RestoreClaim{
			ID: c.id, Want: c.record, Fence: c.fence, Above: b.vote,
		})
	}
	seat.restoring, seat.restored = true, now
	p.send(i, s, nil, Request{Kind: Restore, Restore: r})
	return never
}

// renewingBeside reports whether a Renew is on its way to another server than i. Where i has no session, its
// answer may say that the others have none either, because another party took it over and left it: a Restore
// must not bring it back.
func (s *session) renewingBeside(i int) bool {
	for k := range s.seats {
		if k != i && s.seats[k].renewing {
			return true
		}
	}
	return false
}

// forgetAnswered forgets ended claims below the low-water mark whose end the client knows and every
// server has executed.
func (s *session) forgetAnswered() {
	n := 0
	for n < len(s.graves) && s.graves[n].forgettable() {
		s.forget(s.graves[n])
		s.graves[n] = nil
		n++
	}
	s.graves = s.graves[n:]
}

func (c *claim) forgettable() bool {
	return c.closed && c.id < c.session.lowestOpen && c.executed(len(c.at))
}

// forgetOld forgets ended claims that every server has ended, one TTL after their end.
func (s *session) forgetOld(p *Party, now time.Duration) {
	kept := s.graves[:0]
	for _, c := range s.graves {
		if c.forgettable() || c.executed(p.n) && now-c.since > s.ttl {
			s.forget(c)
			p.timers.set(&c.timer, never)
		} else {
			kept = append(kept, c)
		}
	}
	clear(s.graves[len(kept):])
	s.graves = kept
}

// forgetOldest forgets the half of the ended claims that ended first, because there are too many. If
// a server still has one of them, it is ended there as a stray.
func (s *session) forgetOldest(p *Party) {
	n := len(s.graves) / 2
	for _, c := range s.graves[:n] {
		p.answerAll(c.enders, nil)
		p.timers.set(&c.timer, never)
		s.forget(c)
	}
	s.graves = append([]*claim(nil), s.graves[n:]...)
}

func (s *session) forget(c *claim) { delete(s.claims, c.id) }
