package quorum

import "time"

// Message is a message of a server on the channel of the party. It is a hint: once the votes of the
// session were void at that server, or if the message has another epoch, it only makes the party
// ask.
func (p *Party) Message(now time.Duration, server int, m Message) {
	s := p.sessions[m.Session]
	if s == nil || m.Epoch < s.epoch {
		return
	}
	seat := &s.seats[server]
	if m.Epoch > s.epoch {
		if !p.attaching(s.id, m.Epoch) {
			for i := range s.seats {
				s.seats[i].renew = true
			}
			p.pushSeats(s, now)
		}
		return
	}
	c := s.claims[m.Claim.ID]
	switch {
	case c == nil:
		p.endStray(s, server, &m.Claim)
		return
	case c.phase == ended:
		c.listed(server, &m.Claim)
	case seat.voided || m.Now <= 0:
		p.ask(c, server)
	default:
		p.apply(c, server, evidence{state: &m.Claim, now: m.Now, sent: p.sentAt(server, m.Now, now), got: now})
	}
	p.decide(c, now)
	p.afterReply(s, now)
}

// sentAt returns a moment on the boot clock that is probably not later than when a server sent a
// message at its time at.
func (p *Party) sentAt(server int, at Micros, now time.Duration) time.Duration {
	s := &p.base.samples[server]
	if !s.known {
		return now
	}
	sent := time.Duration(at-s.offset)*time.Microsecond - s.rtt
	return min(max(sent, 0), now)
}
