package quorum

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// phase is the stage of a claim's life at the party.
type phase uint8

const (
	waiting phase = iota
	held
	ended
)

// A claim of a session of this party.
type claim struct {
	session *session
	id      uint64
	want    lockkeeper.Want // as the caller sent it; of an adopted claim what its record says
	record  WantRecord
	adopted bool          // from the servers, by a takeover: the caller's Want is unknown
	relied  time.Duration // of an adopted one: until when its client may act on votes that the former party counted
	at      []ballot

	phase       phase
	aim         uint64 // the lowest number by which it may still be granted
	fence       uint64
	unconfirmed bool
	reason      lockkeeper.Reason
	text        string
	refusals    []lockkeeper.Blocker // of a wait that ended without a grant
	position    int
	answered    bool // the caller has an answer: from now on changes are notified
	closed      bool // the session knows the end

	change  uint64
	changed time.Duration
	since   time.Duration // of the phase: it began to wait, was granted, ended
	bound   time.Duration // when the wait times out; never
	overdue bool          // its longest hold is over
	asked   *asked
	shown   []Micros // the ends of the ask when the client was notified of it last

	lapse    lockkeeper.Reason // the client stopped using it
	lapseEnd time.Duration     // when the party ends it; 0: the servers do

	statedIn  uint64 // the lease that stated the present ends of its ask; 0: none
	callers   []CallID
	enders    []CallID
	wait      waitState
	asking    time.Duration // since when a majority asks the holders; 0: it does not
	retryAt   time.Duration
	keepUntil time.Duration // of an end that the client did not ask for: no server is asked to end it before
	reportBy  time.Duration // of an end that is not reported yet: when it is at the latest; else 0
	timer     timer
}

func (p *Party) newClaim(s *session, id uint64, now time.Duration) *claim {
	c := &claim{
		session: s, id: id, at: make([]ballot, p.n), since: now, bound: never, retryAt: never, changed: now,
		wait: newWaitState(),
	}
	for i := range c.at {
		c.at[i].askEnd = never
	}
	c.timer = timer{claim: c, order: p.base.created()}
	s.claims[id] = c
	s.live++
	return c
}

// Claim begins [lockkeeper.Engine.Claim].
func (p *Party) Claim(now time.Duration, k lockkeeper.Key, w lockkeeper.Want) CallID {
	call := p.begin(call{at: now})
	s, err := p.find(now, k)
	if err != nil {
		p.answer(Answer{Call: call, Err: err})
		return call
	}
	c := s.claims[w.ID]
	switch {
	case c != nil:
		p.claimAgain(c, call, w, now)
	case w.ID < s.lowestOpen:
		p.answer(Answer{Call: call, Err: &lockkeeper.Error{
			Err: lockkeeper.ErrNotHeld, Detail: "the claim is over: its id is below the low-water mark of its session",
		}})
	case s.live >= MaxSessionClaims:
		p.answer(Answer{Call: call, Err: quota("claims of one session", MaxSessionClaims)})
	default:
		c = p.newClaim(s, w.ID, now)
		c.want, c.record = w, p.recordOf(&w, p.base.next(now))
		c.change = c.record.Ticket
		if w.Wait != lockkeeper.Forever {
			c.bound = now + w.Wait
		}
		c.callers = append(c.callers, call)
		p.decide(c, now)
	}
	return call
}

// claimAgain takes a request for a claim that exists: a repetition, or an amendment (R16).
func (p *Party) claimAgain(c *claim, call CallID, w lockkeeper.Want, now time.Duration) {
	switch {
	case w.Revision < c.want.Revision:
	case w.Revision == c.want.Revision && !p.sameRequest(c, &w):
		p.answer(Answer{Call: call, Err: lockkeeper.Invalid(
			"claim %s: another request was made under this id: use a new id, or a higher revision", c.ref())})
		return
	case w.Revision > c.want.Revision && !p.amend(c, call, w, now):
		return
	}
	if c.adopted && c.phase == waiting && w.Wait != lockkeeper.Forever {
		began := min(p.base.moment(time.Duration(c.record.Ticket)*time.Microsecond), now)
		c.bound = min(c.bound, max(began+w.Wait, now+slowServer)) // servers don't keep it
	}
	if c.phase == waiting && !c.answered || c.amending(p) {
		c.callers = append(c.callers, call)
		p.decide(c, now)
		return
	}
	p.answer(Answer{Call: call, Status: p.status(c, now)})
}

// amend applies a higher revision. Only a higher priority is possible. It answers a refusal.
func (p *Party) amend(c *claim, call CallID, w lockkeeper.Want, now time.Duration) bool {
	old := c.want
	old.Priority, old.Revision = w.Priority, w.Revision
	old.Wait = w.Wait // the wait of an amendment has no meaning
	same := old.SameRequest(&w)
	if c.adopted {
		x, y := p.recordAs(c, &w), c.record
		y.Priority, y.Revision = x.Priority, x.Revision
		same = sameRecord(&x, &y)
	}
	switch {
	case c.phase == ended:
		return true // the answer is its end
	case c.lapse != lockkeeper.NoReason:
		p.answer(Answer{Call: call, Err: &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: "the hold has lapsed"}})
		return false
	case !same || w.Priority < c.record.Priority:
		p.answer(Answer{Call: call, Err: lockkeeper.Invalid(
			"claim %s: an amendment can only raise the priority, which is %d", c.ref(), c.record.Priority)})
		return false
	}
	c.want.Priority, c.want.Revision = w.Priority, w.Revision
	c.record.Priority, c.record.Revision = w.Priority, w.Revision
	p.touch(c, now)
	return true
}

// amending reports whether a majority of the servers does not know the latest revision yet.
func (c *claim) amending(p *Party) bool {
	if c.phase == ended || c.want.Revision == 0 {
		return false
	}
	n := 0
	for i := range c.at {
		if c.at[i].revision >= c.want.Revision {
			n++
		}
	}
	return n < p.majority
}

func (c *claim) ref() lockkeeper.Ref { return lockkeeper.Ref{Session: c.session.id, ID: c.id} }

// touch records that the claim changed.
func (p *Party) touch(c *claim, now time.Duration) {
	c.change, c.changed = max(c.change+1, p.base.next(now)), now
}

// decide concludes what follows from what the servers said of c, sends what is due, and sets its
// timer. It changes nothing if nothing new is known.
func (p *Party) decide(c *claim, now time.Duration) {
	if c.session.over {
		return
	}
	switch c.phase {
	case waiting:
		p.decideWaiting(c, now)
	case held:
		p.decideHeld(c, now)
	case ended:
		p.reportTimeout(c, now)
		p.answerEnders(c) // a server may have come up
	}
	if c.phase != ended && len(c.callers) > 0 && c.answered && !c.amending(p) {
		p.answerCallers(c, now)
	}
	p.push(c, now)
	p.schedule(c, now)
}

func (p *Party) decideWaiting(c *claim, now time.Duration) {
	if n, why, text := c.endedAt(); n > p.n-p.majority || n > 0 && why == lockkeeper.Revoked {
		if !c.wantsTry() || why != lockkeeper.TimedOut || n >= p.majority {
			p.refuse(c, why, text, now)
			return
		}
	}
	if p.tryGrant(c, now) {
		return
	}
	if p.waitEnd(c, now) <= now && !c.wantsTry() {
		p.refuse(c, lockkeeper.TimedOut, "", now)
		return
	}
	p.decideWait(c, now)
}

// wantsTry reports whether the claim does not wait. An adopted one was decided before.
func (c *claim) wantsTry() bool { return c.record.Try && !c.adopted }

// tryGrant grants c if a majority has voted for it and is stamped, and if the holder may rely on
// these servers for as long as its client believes that the session lives. It renews the session
// at servers that have voted but promise too little.
func (p *Party) tryGrant(c *claim, now time.Duration) bool {
	f := p.fence(c, now)
	if f == 0 {
		p.raiseAim(c, now)
		if c.counted() >= p.majority && p.currentVotes(c, now) < p.majority {
			for i := range c.at {
				if c.at[i].counts() && p.promisesTooLittle(c.session, i, now) {
					c.session.seats[i].renew = true
				}
			}
			p.pushSeats(c.session, now)
		}
		return false
	}
	if w := &c.wait; !w.late && !p.confirmed(c, now) && p.mayConfirm(c, now) {
		if w.decideBy == never {
			w.decideBy = now + slowServer
		}
		return false
	}
	c.phase, c.fence, c.since = held, f, now
	if c.adopted {
		c.since = c.grantedSince(now)
	}
	c.unconfirmed = !p.confirmed(c, now)
	if took := p.shakes.granted(c, now); took > 0 {
		p.out.Handshakes = append(p.out.Handshakes, took)
	}
	c.wait = newWaitState()
	p.touch(c, now)
	p.updateAsk(c, now)
	p.report(c, now)
	return true
}

// grantedSince returns when an adopted hold began, as the server says that has it for longest.
func (c *claim) grantedSince(now time.Duration) time.Duration {
	since := now
	for i := range c.at {
		if b := &c.at[i]; b.counts() && b.state != nil && b.state.Since > 0 {
			since = min(since, b.stateSent-(b.now-b.state.Since).duration())
		}
	}
	return since
}

// report answers the callers of c, or notifies the client if it has an answer already.
func (p *Party) report(c *claim, now time.Duration) {
	if c.answered {
		p.notify(c, now)
	}
	p.answerCallers(c, now)
}

func (p *Party) answerCallers(c *claim, now time.Duration) {
	if len(c.callers) == 0 {
		c.answered = c.answered || c.phase == ended
		return
	}
	c.answered = true
	if c.phase == ended {
		c.closed = true
	}
	a := Answer{Status: p.status(c, now)}
	if c.phase == ended && c.reason == lockkeeper.Quota {
		a = Answer{Err: &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: c.text}}
	}
	for _, a.Call = range c.callers {
		p.answer(a)
	}
	c.callers = c.callers[:0]
}

func (p *Party) notify(c *claim, now time.Duration) {
	st := p.status(c, now)
	if last := len(p.out.Notices) - 1; last >= 0 {
		n := &p.out.Notices[last]
		if n.Session == c.session.id && n.Epoch == c.session.epoch && len(n.Statuses) > 0 {
			n.Statuses = append(n.Statuses, st)
			return
		}
	}
	p.out.Notices = append(p.out.Notices, Notice{
		Session: c.session.id, Epoch: c.session.epoch, Statuses: []lockkeeper.Status{st},
	})
}

// decideHeld ends a hold that has lost its majority or is over, and follows its asks. If a server has
// ended the hold for a thief, the ask is over: no Restore brings the majority back.
func (p *Party) decideHeld(c *claim, now time.Duration) {
	n, why, text := c.endedAt()
	forced, stolen := n > 0 && why == lockkeeper.Revoked, n > 0 && why == lockkeeper.Stolen
	switch {
	case c.counted() < p.majority && !forced && !stolen && p.mayComeBack(c, n) && now < c.session.limit():
		p.restoreLost(c, now)
		return
	case c.counted() < p.majority || forced:
		if why == lockkeeper.NoReason {
			why = lockkeeper.Expired
		}
		if c.lapse != lockkeeper.NoReason && !forced {
			why = c.lapse
		}
		p.finish(c, why, text, now)
		return
	case c.lapseEnd != 0 && now >= c.lapseEnd:
		p.finish(c, c.lapse, "", now)
		return
	case c.record.MaxHold > 0 && now >= c.overdueEnd():
		p.finish(c, lockkeeper.Overdue, "", now)
		return
	case c.record.MaxHold > 0 && !c.overdue && now >= c.overdueAt():
		c.overdue = true
	}
	p.updateAsk(c, now)
}

// mayComeBack reports whether a hold without a majority of votes, which n servers have ended, may get
// them again by a Restore: servers lost it with their data. The client relies on the hold until the
// end that it knows. Until then the other servers must keep their votes, or a rival could get a
// majority.
func (p *Party) mayComeBack(c *claim, n int) bool {
	absent := 0
	for i := range c.session.seats {
		if c.session.seats[i].absent {
			absent++
		}
	}
	return n <= p.n-p.majority && absent < p.majority && c.lapse == lockkeeper.NoReason
}

// restoreLost sets c again at the servers that lost it.
func (p *Party) restoreLost(c *claim, now time.Duration) {
	for i := range c.at {
		if b := &c.at[i]; !b.counts() && !b.ended && !b.known && !b.sent {
			c.retryAt = min(c.retryAt, p.restore(c.session, i, now))
		}
	}
}

func (c *claim) overdueAt() time.Duration  { return c.since + c.record.MaxHold.duration() }
func (c *claim) overdueEnd() time.Duration { return c.overdueAt() + c.record.Grace.duration() }

// finish ends c for good, and sends its end to all servers that may have it. If the client of a hold
// did not ask for the end, it may act until the end that it knows. Until then the servers keep their
// votes, or end them by themselves, which leaves a later grant unconfirmed.
func (p *Party) finish(c *claim, why lockkeeper.Reason, text string, now time.Duration) {
	if c.phase == held && !c.closed && c.lapse == lockkeeper.NoReason && why != lockkeeper.Overdue {
		c.keepUntil = c.session.limit()
	}
	if c.phase == waiting && !c.closed && p.mayBeHeld(c, now) {
		c.keepUntil = c.relied
	}
	c.phase, c.reason, c.text, c.since, c.asked = ended, why, text, now, nil
	s := c.session
	p.unname(c)
	s.live--
	s.graves = append(s.graves, c)
	for i := range c.at {
		b := &c.at[i]
		forgotten := b.ended && b.reason != lockkeeper.Stolen && b.reason != lockkeeper.Revoked
		b.endDone = forgotten || !b.sent // a server keeps other ends until the session asks for them
		b.state, b.ask = nil, nil
	}
	p.touch(c, now)
	if why == lockkeeper.TimedOut && !c.wantsTry() {
		c.reportBy = now + timeoutPatience
	} else {
		p.report(c, now)
	}
	p.push(c, now)
	p.schedule(c, now)
	if len(s.graves) > MaxSessionClaims {
		s.forgetOldest(p)
	}
}

// push sends what is due for c to each server.
func (p *Party) push(c *claim, now time.Duration) {
	for i := range c.at {
		if !p.up[i] || c.session.over {
			continue
		}
		b := &c.at[i]
		if now < b.full && (c.phase != ended || !b.endDone) {
			c.retryAt = min(c.retryAt, b.full)
			continue
		}
		if c.phase == ended && !b.endDone && p.ahead(c.session, i) {
			c.retryAt = min(c.retryAt, now+retryPause)
			continue
		}
		if c.phase == ended {
			if !b.endDone && !b.ending && now >= c.keepUntil {
				b.ending = true
				p.send(i, c.session, c, Request{Kind: End, Reason: c.reason})
			}
			continue
		}
		if b.ended || !p.usable(c.session, i) {
			continue
		}
		p.pushLive(c, i, now)
	}
}

func (p *Party) pushLive(c *claim, i int, now time.Duration) {
	b := &c.at[i]
	counts := b.counts()
	switch {
	case b.claiming || b.returning:
	case !b.known && !b.sent && (c.phase == held || c.belowMark()):
		c.retryAt = min(c.retryAt, p.restore(c.session, i, now))
	case c.phase == waiting && !b.sent, b.known && b.revision < c.record.Revision:
		b.sent, b.claiming, b.askedAt = true, true, p.number+1
		p.send(i, c.session, c, Request{Kind: Claim, Want: c.record})
	case c.phase == waiting && counts && c.aim > b.counter && b.vote <= c.aim && !b.stamping:
		b.stamping = true
		p.send(i, c.session, c, Request{Kind: Stamp, Vote: b.vote, Fence: c.aim})
	case c.phase == waiting && b.stuck():
		b.returning = true
		p.send(i, c.session, c, Request{Kind: Return, Vote: b.state.Vote, Favour: b.returned.String()})
	}
	if c.phase == held && c.lapse != lockkeeper.NoReason && b.known && !b.lapsing &&
		(b.state == nil || !b.state.Lapsed) {
		b.lapsing = true
		p.send(i, c.session, c, Request{Kind: Lapse, Reason: c.lapse})
	}
}

// schedule sets the timer of c.
func (p *Party) schedule(c *claim, now time.Duration) {
	at := c.retryAt
	switch c.phase {
	case waiting:
		at = min(at, c.wait.pollAt, c.wait.splitAt, c.wait.decideBy, c.wait.answerAt)
		if !c.wantsTry() {
			at = min(at, p.waitEnd(c, now))
		}
	case held:
		if c.record.MaxHold > 0 {
			if c.overdue {
				at = min(at, c.overdueEnd())
			} else {
				at = min(at, c.overdueAt())
			}
		}
		if c.lapseEnd != 0 {
			at = min(at, c.lapseEnd)
		}
	case ended:
		if c.reportBy != 0 {
			at = min(at, c.reportBy)
		}
		if c.keepUntil > now {
			at = min(at, c.keepUntil)
		}
	}
	p.timers.set(&c.timer, max(at, now+shortestPause))
}

func (p *Party) wakeClaim(c *claim, now time.Duration) {
	if now >= c.retryAt {
		c.retryAt = never
	}
	if c.phase == waiting {
		p.wakeWait(c, now)
	}
	p.decide(c, now)
}
