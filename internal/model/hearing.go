package model

import (
	"slices"
	"time"
)

// tell notes the end that an answer about c states: a lease of that number, or the
// answer to a claim if it is 0 (R12).
func (m *Model) tell(c *claim, lease uint64) {
	c.told = forever
	if c.holds() {
		c.told = m.enforcedEnd(c)
		c.stated = append(c.stated, statement{lease, c.told})
	}
}

// hear notes the number that s states, and forgets what its claims were told
// before the ends of which it has heard by now.
func (m *Model) hear(s *session, heard uint64) {
	s.heard = max(s.heard, min(heard, s.leases))
	for _, c := range m.claims {
		if i := heardIn(c.stated, s.heard); c.ref.Session == s.id && i >= 0 {
			c.stated = slices.Delete(c.stated, 0, i)
		}
	}
}

// heardIn finds the last end that counts as heard: that of a lease which was heard,
// and all since the same. It is the index of that lease, or -1.
func heardIn(stated []statement, heard uint64) int {
	for i, s := range stated {
		same := !slices.ContainsFunc(stated[i:], func(later statement) bool { return later.end != s.end })
		if s.lease != 0 && s.lease <= heard && same {
			return i
		}
	}
	return -1
}

// countedOn is until when the holder of c may count on it, apart from its session.
func (m *Model) countedOn(c *claim) time.Duration {
	if m.session(c.ref.Session).heard == 0 {
		return c.told
	}
	latest := time.Duration(0)
	for _, s := range c.stated {
		latest = max(latest, s.end)
	}
	return latest
}
