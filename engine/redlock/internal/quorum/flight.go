package quorum

import "time"

// A flight is a request on its way: what its reply is for.
type flight struct {
	server  int
	kind    Kind
	session *session
	claim   *claim
	attempt *attempt
	errand  *errand
	acks    []AckRecord
}

// send sends a request of a session, about c if that is not nil.
func (p *Party) send(server int, s *session, c *claim, r Request) {
	r.Session, r.Epoch, r.LowestOpen = s.id, s.epoch, s.lowestOpen
	if c != nil {
		r.ID = c.id
	}
	p.launch(flight{server: server, kind: r.Kind, session: s, claim: c, acks: r.Acks}, r)
}

func (p *Party) launch(f flight, r Request) {
	p.number++
	p.flights[p.number] = f
	p.out.Sends = append(p.out.Sends, Send{Server: f.server, Request: r, Number: p.number})
}

// probe asks for the time of a server.
func (p *Party) probe(server int) {
	p.launch(flight{server: server, kind: List}, Request{Kind: List, Only: "-", Limit: 1})
}

// Reply is the answer of a server to a Send. sent and the time of Reply are on the boot clock; sent
// is not later than the moment when the first byte of the request left.
func (p *Party) Reply(now time.Duration, number uint64, sent time.Duration, r Reply) {
	f, known := p.flights[number]
	if !known {
		return
	}
	if number <= p.lostAt[f.server] {
		p.Failed(now, number, false)
		return
	}
	delete(p.flights, number)
	p.base.learn(f.server, sent, now, r.Now)
	p.startUnready(now)
	switch {
	case f.attempt != nil:
		p.attachReply(f, number, sent, r, now)
	case f.errand != nil:
		p.errandReply(f, r, now)
	case f.session != nil:
		p.sessionReply(f, number, sent, r, now)
	}
}

// Failed says that no answer will come: whether the server executed the request is unknown. unsent: it
// certainly did not.
func (p *Party) Failed(now time.Duration, number uint64, unsent bool) {
	f, known := p.flights[number]
	if !known {
		return
	}
	delete(p.flights, number)
	switch {
	case f.attempt != nil:
		f.attempt.flying[f.server] = false
		p.retryAttempt(f.attempt, f.server, now)
	case f.errand != nil:
		f.errand.flying[f.server] = false
		p.retryErrand(f.errand, now)
	case f.session != nil:
		p.sessionFailed(f, unsent, now)
	}
}

// retryPause is the pause before a request that failed is sent again to a server that is up.
const retryPause = 100 * time.Millisecond

// fullPause is the pause before the next request about a claim to a server that had no room for it, or
// found its data damaged.
const fullPause = time.Second

func (p *Party) sessionFailed(f flight, unsent bool, now time.Duration) {
	s := f.session
	seat := &s.seats[f.server]
	switch f.kind {
	case Renew:
		seat.renewing, seat.renew = false, true
	case Restore:
		seat.restoring = false
	case Ack:
		seat.acking, s.acks = false, true
		for _, a := range f.acks {
			if c := s.claims[a.ID]; c != nil && c.phase != ended {
				c.at[f.server].acked = 0
			}
		}
	}
	if s.over {
		return
	}
	if p.superseded(s, now) { // the server is down, and others have the session of another party
		p.supersede(s, now)
		return
	}
	if c := f.claim; c != nil && s.claims[c.id] == c {
		b := &c.at[f.server]
		b.landed(f.kind)
		if f.kind == Claim {
			b.failedAt = now
		}
		if f.kind == Claim && unsent && !b.known {
			b.sent = false
		}
		c.retryAt = min(c.retryAt, now+retryPause)
		p.decide(c, now)
		return
	}
	s.retryAt = min(s.retryAt, now+retryPause)
	p.afterReply(s, now)
}
