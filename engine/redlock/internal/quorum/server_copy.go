package quorum

import (
	"fmt"
	"maps"
	"slices"
)

// Clone returns a copy that shares nothing that changes.
func (s *Server) Clone() *Server {
	copied := NewServer(s.limits)
	copied.last, copied.floor, copied.followed, copied.ends = s.last, s.floor, s.followed, slices.Clone(s.ends)
	claims := map[*serverClaim]*serverClaim{}
	for id, e := range s.sessions {
		session := *e
		session.claims = make(map[uint64]*serverClaim, len(e.claims))
		for id, c := range e.claims {
			twin := *c
			twin.session = &session
			twin.asks = slices.Clone(c.asks)
			session.claims[id] = &twin
			claims[c] = &twin
		}
		copied.sessions[id] = &session
	}
	for name, p := range s.paths {
		twin := *p
		if p.holder != nil {
			twin.holder = claims[p.holder]
		}
		twin.queue = make([]*serverClaim, len(p.queue))
		for i, c := range p.queue {
			twin.queue[i] = claims[c]
		}
		copied.paths[name] = &twin
	}
	return copied
}

// AppendText appends the data of the server. Servers with the same data have the same text.
func (s *Server) AppendText(b []byte) []byte {
	b = fmt.Appendf(b, "last %d floor %d followed %d ends %+v\n", s.last, s.floor, s.followed, s.ends)
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		e := s.sessions[id]
		b = fmt.Appendf(b, "session %q epoch %d nonce %q to %q low %d ttl %d span %d until %d label %q\n",
			id, e.epoch, e.nonce, e.to, e.low, e.ttl, e.span, e.until, e.label)
		for _, c := range e.all() {
			b = fmt.Appendf(b, "claim %d %s since %d vote %d asks %+v stated %d lapsed %s %d reason %s %q %d %d %t want %+v\n",
				c.ref.ID, c.state, c.since, c.vote, c.asks, c.stated, c.lapsed, c.lapseEnd,
				c.reason, c.text, c.counter, c.relied, c.finished, c.want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.paths)) {
		p := s.paths[name]
		b = fmt.Appendf(b, "path %q counter %d unsure %d queue", name, p.counter, p.unsure)
		for _, c := range p.queue { // the holder is in its claim
			b = fmt.Appendf(b, " %s", c.ref)
		}
		b = append(b, '\n')
	}
	return b
}

// ForgetIdle drops the records that may vanish at any time.
func (s *Server) ForgetIdle() {
	maps.DeleteFunc(s.paths, func(_ string, p *serverPath) bool {
		return p.holder == nil && len(p.queue) == 0 && p.unsure <= s.last
	})
}

// Promises returns how long the longest session still lives when the clock shows now, and the
// floor: what a server that lost its data has to wait for and starts from (condition 2).
func (s *Server) Promises(now Micros) (longest Micros, floor uint64) {
	for _, e := range s.sessions {
		longest = max(longest, min(e.until-now, e.span))
	}
	return longest, s.floor
}

// RaiseFloor makes the floor at least floor, on a server without paths.
func (s *Server) RaiseFloor(floor uint64) { s.floor = max(s.floor, floor) }

// Check returns an error if the data contradicts itself.
func (s *Server) Check() error {
	for name, p := range s.paths {
		if p.counter > s.floor {
			return fmt.Errorf("path %q: counter %d above the floor %d", name, p.counter, s.floor)
		}
		if h := p.holder; h != nil && (s.find(h.ref) != h || h.vote == 0 || h.vote > p.counter) {
			return fmt.Errorf("path %q: holder %s with vote %d of %d", name, h.ref, h.vote, p.counter)
		}
		if !slices.IsSortedFunc(p.queue, compare) {
			return fmt.Errorf("path %q: the queue is not in order", name)
		}
	}
	for _, e := range s.sessions {
		for _, c := range e.claims {
			for _, name := range c.want.Paths {
				p := s.paths[name]
				if c.vote != 0 && (p == nil || p.holder != c) {
					return fmt.Errorf("claim %s has a vote without the path %q", c.ref, name)
				}
			}
		}
	}
	return nil
}
