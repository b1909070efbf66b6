package quorum

import (
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// extend gives the session its whole TTL.
func (e *serverSession) extend(now Micros) {
	if now+e.ttl >= e.until {
		e.until, e.span = now+e.ttl, e.ttl
	}
}

// ids returns the ids of the session's claims in order.
func (e *serverSession) ids() []uint64 { return slices.Sorted(maps.Keys(e.claims)) }

// all returns the session's claims in order of id.
func (e *serverSession) all() []*serverClaim {
	claims := make([]*serverClaim, 0, len(e.claims))
	for _, id := range e.ids() {
		if c := e.claim(id); c != nil {
			claims = append(claims, c)
		}
	}
	return claims
}

// lease is the reply to Attach, Renew and Restore.
func (e *serverSession) lease() (Reply, []*serverClaim) {
	return Reply{Outcome: Done, Until: e.until}, e.all()
}

// adopt takes over the epoch of a key whose attach the server missed.
func (e *serverSession) adopt(epoch uint64) {
	if epoch > e.epoch {
		e.forget()
		e.epoch, e.nonce, e.low = epoch, "", 0
	}
}

// sessionOf returns the session that r may act for, or the refusal.
func (s *Server) sessionOf(r *Request) (*serverSession, Reply) {
	e := s.sessions[r.Session]
	if e == nil {
		return nil, Reply{Outcome: NoSession}
	}
	if e.epoch > r.Epoch {
		return nil, Reply{Outcome: OtherEpoch, Epoch: e.epoch}
	}
	e.adopt(r.Epoch)
	e.raiseLow(r.LowestOpen)
	return e, Reply{}
}

func (e *serverSession) raiseLow(low uint64) {
	e.low = max(e.low, low)
	e.forget()
}

// forget drops what claim does not return.
func (e *serverSession) forget() {
	maps.DeleteFunc(e.claims, func(id uint64, _ *serverClaim) bool { return e.claim(id) == nil })
}

// claim returns a claim of the session; nil if it is unknown or forgotten.
func (e *serverSession) claim(id uint64) *serverClaim {
	c := e.claims[id]
	if c != nil && id < e.low && c.state == lockkeeper.Ended && c.finished {
		return nil
	}
	return c
}

// open makes the session, if the limit allows it.
func (s *Server) open(id string) *serverSession {
	if s.limits.Sessions > 0 && len(s.sessions) >= s.limits.Sessions {
		return nil
	}
	e := &serverSession{id: id, claims: map[uint64]*serverClaim{}}
	s.sessions[id] = e
	return e
}

func (s *Server) attach(r *Request) (Reply, []*serverClaim) {
	a := &r.Attach
	if a.NewEpoch <= r.Epoch {
		return Reply{Outcome: Differs, Text: "the new epoch is not above the old one"}, nil
	}
	e := s.sessions[r.Session]
	repeated := e != nil && e.epoch == a.NewEpoch && (e.nonce == a.Nonce || e.nonce == "")
	if e != nil && e.epoch > r.Epoch && !repeated {
		return Reply{Outcome: OtherEpoch, Epoch: e.epoch}, nil
	}
	if e == nil {
		if e = s.open(r.Session); e == nil {
			return Reply{Outcome: Full, Text: "too many sessions"}, nil
		}
	}
	before := e.epoch
	e.epoch, e.nonce, e.ttl, e.to, e.label = a.NewEpoch, a.Nonce, a.TTL, a.To, a.Label
	e.extend(s.last)
	if repeated {
		return e.attachLease(before)
	}
	e.forget()
	e.low = r.LowestOpen
	for _, l := range a.Lapsed {
		if c := e.claim(l.ID); c != nil && c.state != lockkeeper.Ended {
			s.lapse(c, l.Reason)
		}
	}
	for _, c := range e.all() {
		switch {
		case slices.Contains(a.Named, c.ref.ID):
		case c.state == lockkeeper.Ended:
			s.makeSure(c)
		case c.lapsed == 0:
			s.finish(c, lockkeeper.Superseded) // the client that lost it may come back within a TTL and name it
		}
	}
	return e.attachLease(before)
}

// attachLease is the lease of an Attach of a session that had the epoch before; 0: it is new.
func (e *serverSession) attachLease(before uint64) (Reply, []*serverClaim) {
	reply, about := e.lease()
	reply.Epoch = before
	return reply, about
}

// leave ends the session and its claims.
func (s *Server) leave(e *serverSession) {
	for _, c := range e.all() {
		if c.state != lockkeeper.Ended {
			s.finish(c, lockkeeper.Released)
		}
		s.makeSure(c)
		delete(s.changed, c)
	}
	delete(s.sessions, e.id)
}

func (e *serverSession) acknowledge(acks []AckRecord) {
	for _, a := range acks {
		c := e.claim(a.ID)
		if c == nil {
			continue
		}
		for i := range c.asks {
			c.asks[i].Acked = c.asks[i].Acked || c.asks[i].End == a.End
		}
	}
}

func (s *Server) restore(r *Request) (Reply, []*serverClaim) {
	e := s.sessions[r.Session]
	if e != nil && e.epoch > r.Epoch {
		return Reply{Outcome: OtherEpoch, Epoch: e.epoch}, nil
	}
	if e == nil {
		if e = s.open(r.Session); e == nil {
			return Reply{Outcome: Full, Text: "too many sessions"}, nil
		}
	}
	e.adopt(r.Epoch)
	e.raiseLow(r.LowestOpen)
	e.ttl, e.to, e.label = r.Restore.TTL, r.Restore.To, r.Restore.Label
	e.extend(s.last)
	for i := range r.Restore.Claims {
		s.restoreClaim(e, &r.Restore.Claims[i])
	}
	return e.lease()
}

// restoreClaim sets a claim that the server lacks (condition 3).
func (s *Server) restoreClaim(e *serverSession, r *RestoreClaim) {
	c := e.claim(r.ID)
	if c != nil && c.state == lockkeeper.Ended {
		return
	}
	if c == nil && r.Fence > 0 && !s.mayRestore(&serverClaim{want: r.Want}, r) {
		return
	}
	if c == nil {
		if c = s.add(e, r.ID, r.Want); c == nil {
			return
		}
		s.enqueue(c)
	}
	switch {
	case r.Fence == 0:
	case c.state == lockkeeper.Held:
		if s.counterOf(c) < r.Fence {
			s.setCounter(c, r.Fence)
		}
	case s.mayRestore(c, r):
		s.vote(c, max(r.Fence, r.Above+1))
	}
}

// mayRestore reports whether the paths of c are without a holder, and nobody can have been granted
// one of them after the grant with the fence.
func (s *Server) mayRestore(c *serverClaim, r *RestoreClaim) bool {
	return !s.taken(c) && s.counterOf(c) <= max(r.Fence, r.Above)
}
