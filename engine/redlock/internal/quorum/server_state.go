package quorum

import (
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// describe returns the state of c.
func (s *Server) describe(c *serverClaim, withWant bool) ClaimState {
	state := ClaimState{
		ID:       c.ref.ID,
		State:    c.state,
		Reason:   c.reason,
		Text:     c.text,
		Revision: c.want.Revision,
		Vote:     c.vote,
		Counter:  c.counter,
		Since:    c.since,
		Lapsed:   c.lapsed != 0,
		LapseEnd: c.lapseEnd,
	}
	if withWant && c.want.Paths != nil {
		want := c.want
		state.Want = &want
	}
	if c.state == lockkeeper.Ended {
		return state
	}
	state.Counter = s.counterOf(c)
	for _, p := range s.pathsOf(c) {
		if p.unsure > s.last {
			state.Unsure = max(state.Unsure, p.unsure)
		}
	}
	if ask := shown(c.asks); ask != nil {
		copied := *ask
		state.Ask = &copied
	}
	if c.state == lockkeeper.Waiting {
		most := NamedAhead
		if withWant || c.want.Try {
			most = lockkeeper.MaxBlockers
		}
		s.describeWait(c, &state, most)
	}
	return state
}

// describeWait adds what c waits for. Of each queue it names at most most claims ahead.
func (s *Server) describeWait(c *serverClaim, state *ClaimState, most int) {
	by := c.ref.String()
	for _, h := range s.holders(c) {
		for _, a := range h.asks {
			if a.By == by {
				state.Asking = true
				state.AskEnd = max(state.AskEnd, a.End)
			}
		}
	}
	var seen []*serverClaim
	add := func(path string, b *serverClaim) {
		if len(seen) < lockkeeper.MaxBlockers && !slices.Contains(seen, b) {
			seen = append(seen, b)
			state.Blockers = append(state.Blockers, describeBlocker(path, b))
		}
	}
	for _, name := range c.want.Paths {
		if p := s.paths[name]; p != nil && p.holder != nil {
			add(name, p.holder)
		}
	}
	state.Position = 1
	for _, name := range c.want.Paths {
		p := s.paths[name]
		if p == nil {
			continue
		}
		ahead := p.ahead(c)
		state.Position = max(state.Position, 1+ahead)
		for _, b := range p.queue[:min(ahead, most)] {
			add(name, b)
		}
	}
}

func describeBlocker(path string, b *serverClaim) Blocker {
	blocker := Blocker{
		Ref:      b.ref,
		Path:     path,
		Waiting:  b.state == lockkeeper.Waiting,
		Vote:     b.vote,
		Priority: b.want.Priority,
		Ticket:   b.want.Ticket,
		Since:    b.since,
		Until:    b.session.until,
		Label:    b.want.Label,
	}
	if b.state == lockkeeper.Waiting {
		return blocker
	}
	if b.lapsed != 0 {
		blocker.Until = min(blocker.Until, b.lapseEnd)
	}
	if ask := shown(b.asks); ask != nil && ask.End != 0 {
		blocker.Until = min(blocker.Until, ask.End)
	}
	if b.want.Expected > 0 {
		blocker.Announced = b.since + b.want.Expected
	}
	return blocker
}

// list answers a List.
func (s *Server) list(r *Request, reply *Reply) {
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if id <= r.After || r.Only != "" && id != r.Only {
			continue
		}
		if r.Limit > 0 && len(reply.Listed) == r.Limit {
			reply.More = true
			return
		}
		e := s.sessions[id]
		listed := SessionState{ID: id, Epoch: e.epoch, TTL: e.ttl, Until: e.until, Label: e.label}
		for _, c := range e.all() {
			listed.Claims = append(listed.Claims, s.describe(c, true))
		}
		reply.Listed = append(reply.Listed, listed)
	}
}

// messages returns the messages about the changed claims.
func (s *Server) messages() []Message {
	var all []Message
	changed := slices.SortedFunc(maps.Keys(s.changed), compare)
	for _, c := range changed {
		all = append(all, Message{
			To:      c.session.to,
			Session: c.session.id,
			Epoch:   c.session.epoch,
			Now:     s.last,
			Claim:   s.describe(c, false),
		})
	}
	s.changed = nil
	return all
}

// words is the text of an end that an operator caused.
func words(l lockkeeper.Label) string { return (&lockkeeper.Asked{Label: l}).Words() }
