package quorum

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// add makes a claim that waits, in no queue yet. It returns nil if the limit forbids it.
func (s *Server) add(e *serverSession, id uint64, w WantRecord) *serverClaim {
	if s.limits.Claims > 0 && len(e.claims) >= s.limits.Claims {
		if e.forget(); len(e.claims) >= s.limits.Claims {
			return nil
		}
	}
	c := &serverClaim{
		ref:     lockkeeper.Ref{Session: e.id, ID: id},
		session: e,
		want:    w,
		state:   lockkeeper.Waiting,
		since:   s.last,
	}
	e.claims[id] = c
	return c
}

func full() Reply { return Reply{Outcome: Full, Text: "the session has too many claims"} }

func (s *Server) claim(e *serverSession, r *Request) (Reply, []*serverClaim) {
	c := e.claim(r.ID)
	switch {
	case c != nil:
		return s.repeatClaim(c, r.Want)
	case r.ID < e.low:
		return Reply{Outcome: NotKnown}, nil
	}
	if c = s.add(e, r.ID, r.Want); c == nil {
		return full(), nil
	}
	if r.Want.Try && (s.taken(c) || !s.first(c, nil)) {
		state := s.describe(c, false)
		s.end(c, lockkeeper.TimedOut)
		c.finished = true
		refused := s.describe(c, false)
		refused.Position, refused.Blockers = state.Position, state.Blockers
		return Reply{Outcome: Done, Claims: []ClaimState{refused}}, []*serverClaim{c}
	}
	s.enqueue(c)
	return Reply{Outcome: Done}, []*serverClaim{c}
}

// repeatClaim returns the state of a known claim, or amends it.
func (s *Server) repeatClaim(c *serverClaim, w WantRecord) (Reply, []*serverClaim) {
	about := []*serverClaim{c}
	if w.Revision < c.want.Revision || c.want.Paths == nil {
		return Reply{Outcome: Done}, about
	}
	amended := w.Revision > c.want.Revision
	if !sameRequest(c.want, w, amended) {
		text := fmt.Sprintf("claim %d was requested otherwise", c.ref.ID)
		return Reply{Outcome: Differs, Text: text}, about
	}
	if c.state == lockkeeper.Ended {
		return Reply{Outcome: Done}, about
	}
	waits := c.state == lockkeeper.Waiting
	if waits {
		s.dequeue(c)
	}
	c.want.Revision, c.want.Priority = w.Revision, w.Priority
	c.want.Ticket = min(c.want.Ticket, w.Ticket)
	if waits {
		s.enqueue(c)
	}
	return Reply{Outcome: Done}, about
}

// sameRequest reports whether w repeats old, or amends its priority only.
func sameRequest(old, w WantRecord, amended bool) bool {
	if w.Priority < old.Priority || w.Priority > old.Priority && !amended {
		return false
	}
	same := slices.Equal(old.Paths, w.Paths)
	return same && old.Try == w.Try && old.Steal == w.Steal && old.After == w.After && old.AfterTTL == w.AfterTTL &&
		old.Expected == w.Expected && old.MaxHold == w.MaxHold && old.Grace == w.Grace &&
		old.Inside == w.Inside && old.Label == w.Label
}

// actOn executes Stamp, Return, End and Lapse.
func (s *Server) actOn(e *serverSession, c *serverClaim, r *Request) (Reply, []*serverClaim) {
	if c == nil {
		if r.Kind == Stamp || r.Kind == Return || r.ID < e.low {
			return Reply{Outcome: NotKnown}, nil
		}
		if c = s.add(e, r.ID, WantRecord{}); c == nil { // a late Claim finds it
			return full(), nil
		}
	}
	outcome := Done
	switch r.Kind {
	case Stamp:
		outcome = s.stamp(c, r)
	case Return:
		outcome = s.returnVote(c, r)
	case End:
		if c.state != lockkeeper.Ended {
			s.finish(c, r.Reason)
		}
		s.makeSure(c)
		c.finished = true
	case Lapse:
		s.lapse(c, r.Reason)
	}
	return Reply{Outcome: outcome}, []*serverClaim{c}
}

func (s *Server) stamp(c *serverClaim, r *Request) Outcome {
	if c.state != lockkeeper.Held || c.vote != r.Vote || s.counterOf(c) > r.Fence {
		return Differs
	}
	s.setCounter(c, r.Fence)
	return Done
}

// returnVote takes the vote from c and favours the claim that r names. If that is over, or waits for
// another claim, too, nobody may overtake those ahead: the queues decide, and c may get a new vote.
func (s *Server) returnVote(c *serverClaim, r *Request) Outcome {
	if c.state != lockkeeper.Held || c.vote != r.Vote || c.lapsed != 0 {
		return Differs
	}
	s.removeVote(c)
	c.state, c.since = lockkeeper.Waiting, s.last
	s.enqueue(c)
	if r.Favour == "" {
		s.settle(c)
		return Done
	}
	if ref, err := lockkeeper.ParseRef(r.Favour); err == nil {
		f := s.find(ref)
		if f != nil && f != c && f.state == lockkeeper.Waiting && !s.taken(f) && s.first(f, c) {
			s.vote(f, s.counterOf(f)+1)
		}
	}
	return Done
}

// find returns the claim, or nil.
func (s *Server) find(ref lockkeeper.Ref) *serverClaim {
	if e := s.sessions[ref.Session]; e != nil {
		return e.claim(ref.ID)
	}
	return nil
}

// lapse lets a vote stand until the end that was stated, for the holder stopped using it.
func (s *Server) lapse(c *serverClaim, reason lockkeeper.Reason) {
	switch {
	case c.state == lockkeeper.Waiting:
		s.finish(c, reason)
		c.finished = true
	case c.state == lockkeeper.Held && c.lapsed == 0:
		c.lapsed, c.lapseEnd = reason, c.session.until
		if c.stated != 0 && reason != lockkeeper.Expired {
			c.lapseEnd = min(c.lapseEnd, c.stated)
		}
	}
}

func (s *Server) revoke(r *Request) (Reply, []*serverClaim) {
	e := s.sessions[r.Session]
	if e == nil {
		return Reply{Outcome: NoSession}, nil
	}
	c := e.claim(r.ID)
	if c == nil {
		return Reply{Outcome: NotKnown}, nil
	}
	switch {
	case c.state == lockkeeper.Waiting:
		c.text = words(r.Label)
		s.finish(c, lockkeeper.Revoked)
	case c.state == lockkeeper.Held && r.Force:
		c.text = words(r.Label)
		s.leaveUnsure(c)
		s.finish(c, lockkeeper.Revoked)
	case c.state == lockkeeper.Held && !slices.ContainsFunc(c.asks, byOperator):
		ask := Ask{Reason: lockkeeper.Revoked, End: s.askEnd(c, e.span), Label: r.Label}
		s.setAsks(c, slices.Insert(slices.Clone(c.asks), 0, ask))
	}
	return Reply{Outcome: Done}, []*serverClaim{c}
}

func byOperator(a Ask) bool { return a.By == "" }
