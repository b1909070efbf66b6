package quorum

import (
	"maps"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// settle ends what is due, votes and asks, until nothing changes. If without is not nil, it does so first as if
// that claim, which returned its vote, did not wait.
func (s *Server) settle(without *serverClaim) {
	for {
		s.endDue()
		changed := s.steal()
		changed = s.grant(without) || changed
		changed = s.renewAsks() || changed
		if !changed {
			return
		}
	}
}

// endDue executes the steps 1 to 3 of settling.
func (s *Server) endDue() {
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		e := s.sessions[id]
		expired := e.until <= s.last
		for _, c := range e.all() {
			switch {
			case c.state == lockkeeper.Ended:
			case expired:
				s.finish(c, lockkeeper.Expired)
			case c.lapsed != 0 && c.lapseEnd <= s.last:
				s.finish(c, c.lapsed)
				c.finished = true
			default:
				s.endRevoked(c)
			}
		}
		if expired {
			delete(s.sessions, id)
		}
	}
}

func (s *Server) endRevoked(c *serverClaim) {
	i := slices.IndexFunc(c.asks, byOperator)
	if i < 0 || c.asks[i].End > s.last {
		return
	}
	c.text = words(c.asks[i].Label)
	s.leaveUnsure(c)
	s.finish(c, lockkeeper.Revoked)
}

// steal executes step 4 of settling.
func (s *Server) steal() bool {
	stolen := false
	for _, t := range s.heads(nil) {
		if t.want.Steal != lockkeeper.Take {
			continue
		}
		holders := s.holders(t)
		if slices.ContainsFunc(holders, func(h *serverClaim) bool { return !h.askEnded(t, s.last) }) {
			continue
		}
		for _, h := range holders {
			s.leaveUnsure(h)
			s.finish(h, lockkeeper.Stolen)
			stolen = true
		}
	}
	return stolen
}

// askEnded reports whether the ask of h by t has an end that has passed.
func (c *serverClaim) askEnded(t *serverClaim, now Micros) bool {
	by := t.ref.String()
	return slices.ContainsFunc(c.asks, func(a Ask) bool { return a.By == by && a.End != 0 && a.End <= now })
}

// grant executes step 5 of settling.
func (s *Server) grant(without *serverClaim) bool {
	granted := false
	for _, c := range s.heads(without) {
		if !s.taken(c) {
			s.vote(c, s.counterOf(c)+1)
			granted = true
		}
	}
	return granted
}

// vote gives the vote of this server to c.
func (s *Server) vote(c *serverClaim, number uint64) {
	s.dequeue(c)
	s.setCounter(c, number)
	c.state, c.vote, c.since = lockkeeper.Held, number, s.last
	for _, p := range s.pathsOf(c) {
		p.holder = c
	}
	s.changed[c] = true
}

// removeVote takes the vote from c.
func (s *Server) removeVote(c *serverClaim) {
	for _, p := range s.pathsOf(c) {
		p.holder = nil
	}
	c.vote, c.asks, c.stated = 0, nil, 0
}

// finish ends c, which may have followers.
func (s *Server) finish(c *serverClaim, reason lockkeeper.Reason) {
	s.end(c, reason)
	s.keepEnd(c)
}

// end ends c.
func (s *Server) end(c *serverClaim, reason lockkeeper.Reason) {
	c.counter = s.counterOf(c)
	if c.state == lockkeeper.Held {
		s.removeVote(c)
	}
	s.dequeue(c)
	c.state, c.reason, c.lapsed, c.lapseEnd = lockkeeper.Ended, reason, 0, 0
	s.changed[c] = true
}

// leaveUnsure notes until when the holder may rely on a promise that this server breaks.
func (s *Server) leaveUnsure(c *serverClaim) {
	if c.lapsed != 0 {
		return
	}
	relied := c.session.until
	for _, a := range c.asks {
		if a.Acked && a.End != 0 {
			relied = min(relied, a.End)
		}
	}
	if relied <= s.last {
		return
	}
	c.relied = relied
	for _, p := range s.pathsOf(c) {
		if p.unsure > s.last {
			p.unsure = max(p.unsure, relied) + 1 // nobody's relied: no single acknowledgement ends the doubt
		} else {
			p.unsure = relied
		}
	}
}

// makeSure ends the doubt about the ended claim c, if there is any: its session knows of the end.
func (s *Server) makeSure(c *serverClaim) {
	if c.relied == 0 {
		return
	}
	for _, p := range s.pathsOf(c) {
		if p.unsure == c.relied {
			p.unsure = 0
		}
	}
	c.relied = 0
}

// renewAsks executes step 6 of settling.
func (s *Server) renewAsks() bool {
	asking := map[*serverClaim][]*serverClaim{} // holder -> its thieves
	for _, t := range s.heads(nil) {
		holders := s.holders(t)
		if t.want.Steal == lockkeeper.NoSteal || slices.ContainsFunc(holders, func(h *serverClaim) bool {
			return h.want.Priority >= t.want.Priority
		}) {
			continue
		}
		for _, h := range holders {
			asking[h] = append(asking[h], t)
		}
	}
	changed := false
	for _, e := range s.sessions {
		for _, c := range e.claims {
			if c.state == lockkeeper.Held {
				changed = s.setAsks(c, s.asksOf(c, asking[c])) || changed
			}
		}
	}
	return changed
}

// asksOf returns the asks of holder c after a change: those of operators, and one for each thief.
func (s *Server) asksOf(c *serverClaim, thieves []*serverClaim) []Ask {
	asks := slices.DeleteFunc(slices.Clone(c.asks), func(a Ask) bool { return a.By != "" })
	for _, t := range thieves {
		by := t.ref.String()
		if i := slices.IndexFunc(c.asks, func(a Ask) bool { return a.By == by }); i >= 0 {
			asks = append(asks, c.asks[i])
			continue
		}
		ask := Ask{By: by, Reason: lockkeeper.Stolen, Label: t.want.Label}
		if t.want.Steal == lockkeeper.Take {
			after := t.want.After
			if t.want.AfterTTL > 0 {
				after = Micros(t.want.AfterTTL) * c.session.span / 1000
			}
			ask.End = s.askEnd(c, after)
		}
		asks = append(asks, ask)
	}
	slices.SortFunc(asks, func(a, b Ask) int { return strings.Compare(a.By, b.By) })
	return asks
}

// askEnd returns the end of a new ask of c.
func (s *Server) askEnd(c *serverClaim, after Micros) Micros {
	end := s.last + min(after, c.session.span)
	if end == c.stated {
		end++
	}
	return end
}

// setAsks replaces the asks of c. It reports whether that changed them.
func (s *Server) setAsks(c *serverClaim, asks []Ask) bool {
	before, after := shown(c.asks), shown(asks)
	if (before == nil) != (after == nil) || before != nil && !sameAsk(*before, *after) {
		s.changed[c] = true
	}
	if after != nil && after.End != 0 {
		c.stated = after.End
	}
	changed := !slices.EqualFunc(c.asks, asks, sameAsk)
	c.asks = asks
	return changed
}

func sameAsk(a, b Ask) bool { return a.By == b.By && a.End == b.End }

// shown returns the ask that the state of a claim shows.
func shown(asks []Ask) *Ask {
	var first *Ask
	for i := range asks {
		a := &asks[i]
		if first == nil || a.End != 0 && (first.End == 0 || a.End < first.End) {
			first = a
		}
	}
	return first
}

// heads returns the waiting claims that are first in the queues of all their paths, sorted. If
// without is not nil, it counts as not waiting.
func (s *Server) heads(without *serverClaim) []*serverClaim {
	var heads []*serverClaim
	for _, p := range s.paths {
		for _, c := range p.queue {
			if c == without {
				continue
			}
			if s.first(c, without) {
				heads = append(heads, c)
			}
			break
		}
	}
	slices.SortFunc(heads, compare)
	return slices.Compact(heads)
}

// first reports whether no claim but without is ahead of c in the queues of its paths.
func (s *Server) first(c, without *serverClaim) bool {
	for _, p := range s.pathsOf(c) {
		for _, other := range p.queue[:p.ahead(c)] {
			if other != without {
				return false
			}
		}
	}
	return true
}

// taken reports whether a path of c has a holder.
func (s *Server) taken(c *serverClaim) bool {
	return slices.ContainsFunc(s.pathsOf(c), func(p *serverPath) bool { return p.holder != nil })
}

// holders returns the holders of the paths of c in the order of the paths, none twice.
func (s *Server) holders(c *serverClaim) []*serverClaim {
	var holders []*serverClaim
	for _, p := range s.pathsOf(c) {
		if p.holder != nil && !slices.Contains(holders, p.holder) {
			holders = append(holders, p.holder)
		}
	}
	return holders
}
