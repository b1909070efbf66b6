package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Which claims of its session an Attach goes on with (R19). Servers end a session one after the other: one lets
// it expire, another one executes an End of its party, to a third one that End is still on its way. So a
// server that still lists a claim proves nothing. A claim goes on iff a majority of the servers had it:
//
//	had(claim) = number of servers that answered the Attach, and list the claim as live
//
// A server that lists a claim had the session, too: an Attach that opens the session lists none, and
// one that is repeated lists what the first one found. The others end:
//
//	had >= majority ────────────────────────> goes on
//	had < majority, and answers in flight ──> the attempt waits for them, until patience is over
//	had < majority ─────────────────────────> ended
//
// A claim that goes on may have been a hold, of which this party finds too few votes: other servers with its votes
// do not answer. It waits then, or ends. Its client acts until it gets the answer to the Attach, at most until
// the end that it knew before. So the votes that are found stay as long as their servers have promised: they are
// neither returned for a rival nor ended, unless the client ends the claim. If a majority had no such session,
// that end has passed.
//
// What this party knows of claims of its own says more than the lists, as long as no other party had the
// session meanwhile. They end if a majority of the servers did not have the session.

// patience returns until when an attempt with a majority waits for the answers in flight.
func (a *attempt) patience() time.Duration { return a.began + min(decisive, a.spec.TTL/2) }

// undecided reports whether answers in flight of so many servers may decide which claims go on.
func (p *Party) undecided(a *attempt, done, open int) bool {
	if open == 0 {
		return false
	}
	if fresh := a.fresh(); 0 < fresh && fresh < min(done, p.majority) {
		return true
	}
	s := p.sessions[a.spec.ID]
	for id, n := range a.had() { // order does not matter: any one suffices
		own := s != nil && s.epoch == a.spec.Epoch && s.claims[id] != nil
		if !own && n < p.majority && n+open >= p.majority {
			return true
		}
	}
	return false
}

// had returns how many servers list each claim as live.
func (a *attempt) had() map[uint64]int {
	had := make(map[uint64]int)
	for i := range a.replies {
		if r := &a.replies[i].reply; r.Outcome == Done {
			for k := range r.Claims {
				if r.Claims[k].State != lockkeeper.Ended {
					had[r.Claims[k].ID]++
				}
			}
		}
	}
	return had
}

// fresh returns how many servers did not have the session before the attempt.
func (a *attempt) fresh() int {
	n := 0
	for i := range a.replies {
		if r := &a.replies[i]; r.got && r.reply.Outcome == Done && r.reply.Epoch == 0 {
			n++
		}
	}
	return n
}

// unname takes a claim that ended under the present epoch from the claims that an attempt in flight names. Servers
// may have executed the Attach before the End, and refuse that under the older epoch.
func (p *Party) unname(c *claim) {
	a := p.attempts[c.session.id]
	if a == nil {
		return
	}
	if i := slices.Index(a.spec.Named, c.id); i >= 0 { // requests on their way have the slice
		a.spec.Named = slices.Delete(slices.Clone(a.spec.Named), i, i+1)
	}
}

// endUnnamed ends the claims of this party that the attach does not name, and notes those that
// lapsed.
func (p *Party) endUnnamed(s *session, a *attempt, now time.Duration) {
	named := set(a.spec.Named)
	for _, l := range a.spec.Lapsed {
		if c := s.claims[l.ID]; c != nil {
			p.lapseClaim(c, l, now)
		}
	}
	for _, c := range s.inOrder() {
		p.answerAll(c.callers, errSession)
		c.callers = nil
		if c.phase != ended && c.lapse == lockkeeper.NoReason && !named[c.id] {
			p.finish(c, lockkeeper.Superseded, "", now)
		}
	}
}

func set(ids []uint64) map[uint64]bool {
	m := make(map[uint64]bool, len(ids))
	for _, id := range ids {
		m[id] = true
	}
	return m
}

// join takes the answer Done of one server to the attach that made the session. It lists all claims that
// the server has of the session.
func (p *Party) join(s *session, a *attempt, i int, r *attachReply, now time.Duration) {
	seat := &s.seats[i]
	if r.number < seat.since {
		return // its votes were void after that
	}
	p.voidUnlisted(s, i, r.reply.Claims)
	seat.renewed(r.sent, r.reply.Now, r.reply.Until)
	for k := range r.reply.Claims {
		st := &r.reply.Claims[k]
		if s.claims[st.ID] == nil && !p.adopt(s, a, st, now) {
			continue
		}
		c := s.claims[st.ID]
		if c.phase == ended {
			c.listed(i, st)
			continue
		}
		p.apply(c, i, evidence{state: st, now: r.reply.Now, sent: r.sent, got: r.at, reply: true})
		if c.adopted && c.at[i].counts() {
			promised := r.at + (r.reply.Until - r.reply.Now).duration() + lockkeeper.Margin(s.ttl)
			c.relied = max(c.relied, promised)
		}
	}
}

// voidUnlisted makes void what a server said of claims before the attach, if it does not list them: its
// session had ended, and they with it. They may be restored there.
func (p *Party) voidUnlisted(s *session, server int, states []ClaimState) {
	listed := make(map[uint64]bool, len(states))
	for k := range states {
		listed[states[k].ID] = true
	}
	for id, c := range s.claims { // order does not matter: each claim is independent
		b := &c.at[server]
		if listed[id] || c.phase == ended || b.stateGot > s.opened {
			continue
		}
		b.invalidate()
		b.ended = b.ended && c.wantsTry()
		b.sent = b.claiming
	}
}

// adopt makes a claim that only the servers know: another party made it.
func (p *Party) adopt(s *session, a *attempt, st *ClaimState, now time.Duration) bool {
	named := slices.Contains(a.spec.Named, st.ID)
	if st.Want == nil || st.ID == 0 || len(st.Want.Paths) == 0 || st.Reason == lockkeeper.Superseded && !named {
		return false // a superseded one stays for a TTL: see takeClaims
	}
	c := p.newClaim(s, st.ID, now)
	c.adopted, c.record, c.want = true, *st.Want, wantOf(st.ID, st.Want)
	p.base.last = max(p.base.last, c.record.Ticket)
	c.change = p.base.latest(now) // the former party may know servers whose clocks are ahead of the common time here
	p.touch(c, now)
	lapsed := slices.ContainsFunc(a.spec.Lapsed, func(l lockkeeper.Lapse) bool { return l.ID == st.ID })
	if !st.Lapsed && !lapsed && !named {
		p.finishAdopted(c, lockkeeper.Superseded, "", now)
	}
	a.adopted = append(a.adopted, c)
	return true
}

// endMinorities ends what the attempt adopted and a majority of the servers did not have.
func (p *Party) endMinorities(a *attempt, now time.Duration) {
	had, expired := a.had(), a.fresh() >= p.majority
	for _, c := range a.adopted {
		if c.phase != waiting || had[c.id] >= p.majority {
			continue
		}
		if expired {
			c.relied = 0
		}
		n, why, text := c.endedAt()
		if n == 0 {
			why = lockkeeper.Expired
		}
		p.finishAdopted(c, why, text, now)
	}
	a.adopted = nil
}

// mayBeHeld reports whether the client of an adopted claim that waits here may still act on it as a hold: the former
// party may count on the votes that this one knows, those of servers that have not answered, and those that
// servers have ended before their promise. While it may, no vote is given up.
func (p *Party) mayBeHeld(c *claim, now time.Duration) bool {
	if now >= c.relied {
		return false
	}
	n := 0
	for i := range c.at {
		if b := &c.at[i]; b.counts() || b.ended || !c.session.seats[i].joined {
			n++
		}
	}
	return n >= p.majority
}

// endExpired ends the claims of this party if a majority of the servers did not have the session.
func (p *Party) endExpired(s *session, a *attempt, now time.Duration) {
	if a.fresh() < p.majority {
		return
	}
	for _, c := range s.inOrder() {
		if c.phase != ended {
			p.finish(c, lockkeeper.Expired, "", now)
		}
	}
}

// finishAdopted ends a claim at all servers, for each of them may have it.
func (p *Party) finishAdopted(c *claim, why lockkeeper.Reason, text string, now time.Duration) {
	for i := range c.at {
		c.at[i].sent = true
	}
	p.finish(c, why, text, now)
}

// joinLate takes the answer of a server to an Attach that a majority had accepted before.
func (p *Party) joinLate(a *attempt, i int, number uint64, sent time.Duration, r Reply, now time.Duration) {
	s := a.installed
	if s.over || s.epoch != a.epoch {
		return
	}
	seat := &s.seats[i]
	seat.attaching = false
	switch r.Outcome {
	case Done:
		a.replies[i] = attachReply{got: true, number: number, sent: sent, at: now, reply: r}
		p.join(s, a, i, &a.replies[i], now)
		p.endMinorities(a, now)
		p.decideAfter(s, nil, nil, true, now)
	case OtherEpoch:
		if number < seat.since || !p.displacedAt(s, i, r.Epoch) {
			seat.renew = true
			break
		}
		if p.superseded(s, now) {
			p.supersede(s, now)
			return
		}
		p.decideAfter(s, nil, nil, true, now)
	default:
		seat.renew = true
	}
	p.afterReply(s, now)
}
