package quorum

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// End begins [lockkeeper.Engine.End].
func (p *Party) End(now time.Duration, k lockkeeper.Key, e lockkeeper.Ending) CallID {
	id := p.begin(call{at: now})
	if e.Kind == lockkeeper.Revoke {
		p.beginErrand(&errand{
			calls: []CallID{id}, until: now + revokeBound,
			request: Request{
				Kind: Revoke, Session: e.Ref.Session, ID: e.Ref.ID, Force: e.Force, Label: e.Label,
			},
		})
		return id
	}
	s, err := p.find(now, k)
	if err != nil {
		p.answer(Answer{Call: id, Err: err})
		return id
	}
	switch e.Kind {
	case lockkeeper.Leave:
		p.leave(s, id, now)
	case lockkeeper.Release:
		p.endClaim(s, id, e.ID, now, nil)
	case lockkeeper.Lapsed:
		p.endClaim(s, id, e.Lapse.ID, now, &e.Lapse)
	default:
		p.answer(Answer{Call: id, Err: &lockkeeper.Error{Err: lockkeeper.ErrUnsupported}})
	}
	return id
}

// endClaim releases or cancels a claim, or takes the report that it lapsed.
func (p *Party) endClaim(s *session, call CallID, id uint64, now time.Duration, l *lockkeeper.Lapse) {
	c := s.claims[id]
	switch {
	case c == nil && id != 0 && id < s.lowestOpen:
		p.answer(Answer{Call: call}) // it is over
		return
	case c == nil:
		p.answer(Answer{Call: call, Err: &lockkeeper.Error{
			Err: lockkeeper.ErrNotHeld, Detail: "the session has no such claim",
		}})
		return
	}
	c.enders = append(c.enders, call)
	switch {
	case c.phase == ended:
		c.closed, c.keepUntil = true, 0
	case l != nil:
		p.lapseClaim(c, *l, now)
	case c.lapse != lockkeeper.NoReason: // a later ending changes nothing
	default:
		c.closed = true
		p.finish(c, c.released(), "", now)
	}
	p.answerEnders(c)
	p.decide(c, now)
}

// released returns the reason of a claim that its client ends.
func (c *claim) released() lockkeeper.Reason {
	switch {
	case c.phase == waiting:
		return lockkeeper.Cancelled
	case c.asked != nil:
		return lockkeeper.Yielded
	}
	return lockkeeper.Released
}

// lapseClaim records that the client stopped using c. The hold lasts until the end that was stated.
func (p *Party) lapseClaim(c *claim, l lockkeeper.Lapse, now time.Duration) {
	revoked := c.asked != nil && c.asked.reason == lockkeeper.Revoked
	switch {
	case c.phase == ended || c.lapse != lockkeeper.NoReason: // only the first report counts
	case c.phase == waiting && l.Reason == lockkeeper.Expired:
		p.finish(c, lockkeeper.Expired, "", now)
	case c.phase == waiting:
		p.finish(c, lockkeeper.Cancelled, "", now)
	case l.Reason == lockkeeper.Overdue && c.record.MaxHold == 0, l.Reason == lockkeeper.Revoked && !revoked:
		c.closed = true
		p.finish(c, lockkeeper.Released, "", now)
	default:
		promised, end := p.holdDeadline(c)
		switch {
		case l.Reason == lockkeeper.Overdue:
			end = min(promised, c.overdueEnd())
		case l.EndsAt > 0:
			end = min(end, p.base.moment(l.EndsAt)) + lockkeeper.Margin(c.session.ttl) + c.slowest()
		default:
			end += lockkeeper.Margin(c.session.ttl) + c.slowest()
		}
		// The servers end it at the end that they stated. What the party knows of that is early by the
		// time that their answers took, at most, so it comes behind them. It alone knows of a longest
		// hold.
		c.lapse, c.lapseEnd = l.Reason, max(end, 1)
		if c.asked != nil && c.asked.reason == l.Reason {
			c.text = (&lockkeeper.Asked{Label: c.asked.label}).Words()
		}
		p.touch(c, now)
	}
}

// slowest returns how long the slowest of the exchanges took by which the party knows c's votes.
func (c *claim) slowest() time.Duration {
	longest := time.Duration(0)
	for i := range c.at {
		if b := &c.at[i]; b.counts() {
			longest = max(longest, b.stateGot-b.stateSent)
		}
	}
	return longest
}

// endExecuted records that a server has executed the End or the Lapse of c, or can't have the claim.
func (p *Party) endExecuted(c *claim, i int, k Kind, r *Reply) {
	o := r.Outcome
	if o == Full || k != End && k != Lapse {
		return
	}
	if o == OtherEpoch && p.attaching(c.session.id, r.Epoch) {
		return // it is due under that epoch: see ahead
	}
	b := &c.at[i]
	if k == End || o == NoSession {
		b.endDone = true
	}
	b.lapsed = b.lapsed || k == Lapse
	p.answerEnders(c)
}

// answerEnders answers the calls that end c when a majority of the servers has executed the end.
func (p *Party) answerEnders(c *claim) {
	if len(c.enders) == 0 {
		return
	}
	if c.endedAtMajority(p) {
		p.answerAll(c.enders, nil)
		c.enders = nil
	}
}

// endedAtMajority reports whether a majority of the servers has executed the end or the lapse of c. One
// that has ended it by itself has to learn that the client knows (R12). A server that never had c counts
// while it is up: a later try needs the votes of the servers that are up.
func (c *claim) endedAtMajority(p *Party) bool {
	n := 0
	for i := range c.at {
		b := &c.at[i]
		if b.endDone && (b.sent || p.up[i]) || c.phase != ended && (b.ended || b.lapsed) {
			n++
		}
	}
	return n >= p.majority || c.phase == ended && c.nowhere()
}

// nowhere reports whether no server can have the claim.
func (c *claim) nowhere() bool { return c.executed(len(c.at)) }

// executed reports whether all servers have executed the end of c.
func (c *claim) executed(servers int) bool {
	for i := range c.at[:servers] {
		if !c.at[i].endDone {
			return false
		}
	}
	return true
}

// listed takes the state of an ended claim: if the server still has it, it is ended there again.
func (c *claim) listed(i int, st *ClaimState) {
	if b := &c.at[i]; st.State != lockkeeper.Ended && !b.ending {
		b.endDone = false
	}
}

// leave ends a session and all its claims.
func (p *Party) leave(s *session, call CallID, now time.Duration) {
	p.closeSession(s, nil)
	s.left = true
	p.beginErrand(&errand{
		calls: []CallID{call}, until: now + max(s.clientEnd-now, s.ttl),
		request: Request{Kind: Leave, Session: s.id, Epoch: s.epoch},
	})
}
