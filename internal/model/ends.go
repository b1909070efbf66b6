package model

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// end ends c for good: what it holds, and what it waits for. A claim that lapsed ends for the
// reason of its lapse (R12).
func (m *Model) end(c *claim, reason lockkeeper.Reason) {
	if c.lapse != nil {
		reason = c.lapse.reason
	}
	if c.holds() {
		m.recordHoldTime(c, reason)
		m.past = append(m.past, endedHold{held: c.held, end: m.now})
		m.addUnacked(c, reason)
	}
	c.reason = reason
	c.forget = m.now + m.session(c.ref.Session).ttl
	m.claims = slices.DeleteFunc(m.claims, func(x *claim) bool { return x == c })
	m.asks = slices.DeleteFunc(m.asks, func(a ask) bool { return a.thief == c || a.holder == c })
	m.ended = append(m.ended, c)
	m.event(table.Event{Kind: table.Ended, Ref: c.ref, Reason: reason})
}

// knownToSession says whether the end of c is forgotten since its session knows it
// for sure (R16).
func (m *Model) knownToSession(c *claim) bool {
	s := m.session(c.ref.Session)
	if s == nil || c.ref.ID >= s.lowestOpen {
		return false
	}
	switch c.reason {
	case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Cancelled:
		return true
	}
	return c.brief
}

// addUnacked leaves a ghost of a hold whose holder may not know of its end yet (R12).
func (m *Model) addUnacked(c *claim, reason lockkeeper.Reason) {
	until := min(m.session(c.ref.Session).promise, m.reliedUntil(c))
	switch reason {
	case lockkeeper.Stolen, lockkeeper.Revoked, lockkeeper.Overdue:
		if m.now < until && c.lapse == nil {
			m.unacked = append(m.unacked, &unackedHold{claim: c, until: until})
		}
	}
}

// giveUp ends the wait of c: a conversion stays held shared (R14).
func (m *Model) giveUp(c *claim, reason lockkeeper.Reason) {
	if !c.holds() {
		m.end(c, reason)
		return
	}
	c.wish = nil
	c.undone = reason
	m.event(table.Event{Kind: table.Undone, Ref: c.ref, Reason: reason})
}

// acknowledgeEnds removes the unacknowledged holders for which knows returns true: they know the end.
func (m *Model) acknowledgeEnds(knows func(*unackedHold) bool) {
	m.unacked = slices.DeleteFunc(m.unacked, knows)
}

// endSession ends s and all its claims, waiting ones too (R11). Freezes stay
// (R18), its unacknowledged holders go: the promise has passed, or the client has left (R12).
func (m *Model) endSession(s *session) {
	for _, c := range slices.Clone(m.claims) {
		if c.ref.Session == s.id {
			m.end(c, lockkeeper.Expired)
		}
	}
	m.close(s)
}

// close forgets s, and with it its ghosts and what its ended claims would answer
// (R12, R16).
func (m *Model) close(s *session) {
	m.acknowledgeEnds(func(g *unackedHold) bool { return g.ref.Session == s.id })
	m.ended = slices.DeleteFunc(m.ended, func(c *claim) bool { return c.ref.Session == s.id })
	m.thawed = slices.DeleteFunc(m.thawed, func(f *freeze) bool { return f.ref.Session == s.id })
	m.sessions = slices.DeleteFunc(m.sessions, func(x *session) bool { return x == s })
}

// endFreeze ends the freeze of one path; its ref is remembered with the last of
// its paths.
func (m *Model) endFreeze(f *freeze, reason lockkeeper.Reason) {
	f.reason = reason
	m.freezes = slices.DeleteFunc(m.freezes, func(x *freeze) bool { return x == f })
	more := slices.ContainsFunc(m.freezes, func(x *freeze) bool { return x.ref == f.ref })
	if s := m.session(f.ref.Session); !more && s != nil && s.ttl > 0 {
		f.forget = m.now + s.ttl
		m.thawed = append(m.thawed, f)
	}
	m.event(table.Event{Kind: table.Thawed, Ref: f.ref, Path: f.path, Reason: reason})
}

// overdueAsk is when a held claim is asked to yield for its longest hold (R11).
func (c *claim) overdueAsk() time.Duration {
	if c.want.MaxHold == 0 {
		return forever
	}
	return c.granted + c.want.MaxHold
}

// overdueEnd is when it ends for it.
func (c *claim) overdueEnd() time.Duration { return after(c.overdueAsk(), c.want.Grace) }

// operatorEnd is when a revocation ends it (R18).
func (c *claim) operatorEnd() time.Duration {
	if c.operator == nil {
		return forever
	}
	return c.operator.end
}

// lapsedEnd returns the end of a hold that lapsed (R12).
func (c *claim) lapsedEnd() time.Duration {
	if c.lapse == nil {
		return forever
	}
	return c.lapse.end
}

// announcedEnd is when it says that it will be released (R8).
func (c *claim) announcedEnd() time.Duration {
	if c.want.Expected == 0 {
		return forever
	}
	return c.granted + c.want.Expected
}

// endHopeless ends the waits that can't end well.
func (m *Model) endHopeless() bool {
	changed := false
	for _, c := range m.queue() {
		if m.hopeless(c) {
			m.giveUp(c, lockkeeper.TimedOut)
			changed = true
		}
	}
	return changed
}

// hopeless says whether the bounded wait of c can't end well (R8).
func (m *Model) hopeless(c *claim) bool {
	if c.bound == forever {
		return false
	}
	for _, f := range m.freezes {
		if f.forbids(c) && c.bound <= f.end {
			return true
		}
	}
	var lasting []*claim
	for _, h := range m.holders() {
		until := min(h.announcedEnd(), h.overdueEnd(), h.operatorEnd(), h.lapsedEnd())
		robbed := c.want.Steal != lockkeeper.NoSteal && h.want.Priority < c.want.Priority
		if h != c && h.want.Expected > 0 && c.bound <= until && !robbed {
			lasting = append(lasting, h)
		}
	}
	return clashesWithSet(c, lasting)
}

// clashesWithSet says whether c is incompatible with a set of holders.
func clashesWithSet(c *claim, set []*claim) bool {
	for _, h := range set {
		if incompatible(h.held, c.wish) {
			return true
		}
	}
	for _, t := range permitsOf(c.wish) {
		units := 0
		for _, h := range set {
			units += unitsOf(h.held, t.Path)
		}
		if units+t.Units > t.Limit {
			return true
		}
	}
	return false
}
