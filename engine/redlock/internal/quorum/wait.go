package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// waitState has the times at which a waiting claim does something by itself.
type waitState struct {
	pollAt   time.Duration // it repeats its question; never: not set
	decideBy time.Duration // it waits no longer for slow servers before it is answered; never: not set, or passed
	late     bool          // decideBy has passed
	answerAt time.Duration // it is answered that it waits; never: not set, or passed
	splitAt  time.Duration // it looks at its split vote
	silentBy time.Duration // its split vote is resolved without servers that have not answered by then; never: not set
}

func newWaitState() waitState {
	return waitState{pollAt: never, decideBy: never, splitAt: never, silentBy: never, answerAt: never}
}

// Pauses of waiting claims.
const (
	slowPoll     = time.Second           // of the first in line; messages make it faster
	mostAhead    = 64                    // claims ahead beyond these do not make the slow poll slower
	firstWaiters = 8                     // the claims that ask when what blocks them ends
	slowServer   = 50 * time.Millisecond // so long a claim waits for the last servers before it is answered
	decisive     = time.Second           // so long for those whose answers decide
	splitPause   = 3 * time.Millisecond  // longest random pause before a vote is returned
	favourPause  = time.Second           // between two returns of votes in favour of the same rival
	afterEnd     = time.Millisecond      // after the end of what blocks it, so that the servers' clocks have passed it
)

// decideWait answers a claim that is not granted: a try as soon as it is decided, another one when a
// majority has queued it. Then it resolves a split vote, and sets the times of the next questions.
func (p *Party) decideWait(c *claim, now time.Duration) {
	known, refusals, flying, votes := p.tally(c, now)
	w := &c.wait
	if known < p.majority || votes >= p.majority {
		p.setPoll(c, now)
		return // it is not known, or it waits for stamps or promises
	}
	if flying > 0 && (c.wantsTry() || !c.answered && votes+flying >= p.majority) && !w.late {
		if w.decideBy == never {
			w.decideBy = now + slowServer
			if c.wantsTry() { // with their votes it may be granted
				w.decideBy = now + decisive
			}
		}
		return
	}
	if c.wantsTry() && refusals == 0 {
		w.decideBy = never
		p.setPoll(c, now)
		return // nobody has it: too few servers answer
	}
	if c.wantsTry() || p.hopeless(c) {
		p.refuse(c, lockkeeper.TimedOut, "", now)
		return
	}
	w.decideBy, w.late = never, false
	if !c.answered {
		p.answerWhenPassed(c, now)
	}
	p.shakes.follow(p, c, now)
	switch {
	case c.counted() == 0:
	case flying == 0:
		w.silentBy = never
		p.resolveSplit(c, now)
	case w.silentBy == never:
		w.silentBy = now + slowServer
	case now >= w.silentBy:
		p.resolveSplit(c, now)
	}
	p.setPoll(c, now)
}

// tally returns of how many servers the party knows what they did with c, how many of these will never vote
// for it, how many may still send an answer that bears on its votes, and how many votes count now.
func (p *Party) tally(c *claim, now time.Duration) (known, refusals, flying, votes int) {
	for i := range c.at {
		b := &c.at[i]
		if b.known || b.ended {
			known++
		}
		if b.ended {
			refusals++
		}
		if p.flying(c, i) || c.wantsTry() && p.joining(c, i) {
			flying++
		}
	}
	return known, refusals, flying, p.currentVotes(c, now)
}

// flying reports whether a request to a server is on its way, or due, whose answer bears on c's votes.
func (p *Party) flying(c *claim, i int) bool {
	b, seat := &c.at[i], &c.session.seats[i]
	renewing := b.counts() && (seat.renewing || seat.restoring || seat.attaching)
	return p.usable(c.session, i) && (b.claiming || b.stamping || b.returning || renewing || !b.sent && !b.ended)
}

// joining reports whether a server may soon have the session of c, and vote for c: it is being connected
// for the first time, or gets the session. A try that fewer servers refuse than a majority waits for it,
// because one of those may not have executed yet a release that a majority has.
func (p *Party) joining(c *claim, i int) bool {
	b, seat := &c.at[i], &c.session.seats[i]
	switch {
	case b.counts() || b.ended:
		return false
	case !p.reported[i]:
		return true
	}
	return p.up[i] && seat.other == 0 && !seat.joined &&
		(seat.absent || seat.renewing || seat.restoring || seat.attaching)
}

// answerWhenPassed answers that c waits, as soon as its ticket has passed on the servers' clocks. Then
// every request that is sent after the answer goes behind it.
func (p *Party) answerWhenPassed(c *claim, now time.Duration) {
	at := p.base.passed(c.record.Ticket, now)
	if at > now {
		c.wait.answerAt = at
		return
	}
	c.wait.answerAt = never
	p.answerCallers(c, now)
}

// setPoll sets the time of the next question: the slow poll, or near the front of the queue when what
// blocks the claim has ended at a majority, if it does not become longer. The slow poll is
//
//	slowPoll * (1 + position/8)    at most 9 s
//
// so that the questions of a long queue cost the servers little.
func (p *Party) setPoll(c *claim, now time.Duration) {
	w := &c.wait
	if w.pollAt <= now || w.pollAt == never {
		pause := slowPoll * time.Duration(8+min(p.position(c), mostAhead)) / 8
		w.pollAt = now + pause*3/4 + time.Duration(p.random.Int64N(int64(pause/2)))
	}
	if p.position(c) > firstWaiters {
		return // those ahead ask, and the servers send messages to the others
	}
	var buffer [7]time.Duration
	ends := buffer[:0]
	for i := range c.at {
		b := &c.at[i]
		if b.ended || b.state == nil {
			continue
		}
		end := time.Duration(0)
		for k := range b.state.Blockers {
			if r := &b.state.Blockers[k]; !r.Waiting && r.Until > 0 {
				end = max(end, b.stateSent+(r.Until-b.now).duration())
			}
		}
		ends = append(ends, end)
	}
	if len(ends) < p.majority {
		return
	}
	slices.Sort(ends)
	if at := ends[p.majority-1] + afterEnd; at > now {
		w.pollAt = min(w.pollAt, at)
	}
}

// wakeWait does what is due by time. It leaves no time that has passed.
func (p *Party) wakeWait(c *claim, now time.Duration) {
	w := &c.wait
	if now >= w.decideBy {
		w.decideBy, w.late = never, true
	}
	if now >= w.answerAt {
		w.answerAt = never
	}
	if now >= w.pollAt {
		w.pollAt = never
		for i := range c.at {
			p.ask(c, i)
		}
	}
	if now >= w.splitAt {
		w.splitAt = never
		p.returnVotes(c, now)
	}
}

// ask repeats the question for the state of a waiting claim at one server.
func (p *Party) ask(c *claim, i int) {
	b := &c.at[i]
	if p.usable(c.session, i) && b.sent && !b.claiming && !b.returning && !b.ended {
		b.claiming, b.askedAt = true, p.number+1
		p.send(i, c.session, c, Request{Kind: Claim, Want: c.record})
	}
}

// waitEnd returns when the wait of c is over: at its bound, but not before the servers have answered its
// first question. So a wait that is shorter than a round trip gets a free lock, and names who has another
// one. Servers that don't answer can make it last until decisive after its beginning.
func (p *Party) waitEnd(c *claim, now time.Duration) time.Duration {
	if c.bound > now {
		return c.bound
	}
	known, _, flying, votes := p.tally(c, now)
	stamps := votes >= p.majority
	if known < p.majority || stamps || !c.answered && votes+flying >= p.majority {
		return max(c.bound, c.since+decisive)
	}
	return c.bound
}

// hopeless reports whether, at a majority, a hold that c does not steal is announced to last until
// the wait is over (R8).
func (p *Party) hopeless(c *claim) bool {
	if c.bound == never {
		return false
	}
	n := 0
	for i := range c.at {
		b := &c.at[i]
		if b.state == nil {
			continue
		}
		if slices.ContainsFunc(b.state.Blockers, func(r Blocker) bool {
			steals := c.record.Steal != lockkeeper.NoSteal && r.Priority < c.record.Priority
			return !r.Waiting && r.Announced > 0 && !steals && b.stateSent+(r.Announced-b.now).duration() >= c.bound
		}) {
			n++
		}
	}
	return n >= p.majority
}

// refuse ends a wait without a grant, with the blockers as evidence.
func (p *Party) refuse(c *claim, why lockkeeper.Reason, text string, now time.Duration) {
	c.refusals, c.position = p.blockers(c, now), p.position(c)
	p.finish(c, why, text, now)
}

// timeoutPatience bounds how long the end of a bounded wait is kept back until a majority of the
// servers has executed it. Until then the claim could still get votes, which a later try would find.
const timeoutPatience = 200 * time.Millisecond

// reportTimeout reports the end of a bounded wait when it is due.
func (p *Party) reportTimeout(c *claim, now time.Duration) {
	if c.reportBy != 0 && (now >= c.reportBy || c.endedAtMajority(p)) {
		c.reportBy = 0
		p.report(c, now)
	}
}
