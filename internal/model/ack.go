package model

import (
	"slices"
	"time"
)

// recordStatedEnd notes the end that an answer about c states: a lease of that number, or the
// answer to a claim if it is 0 (R12).
func (m *Model) recordStatedEnd(c *claim, lease uint64) {
	c.statedEnd = forever
	if c.holds() {
		c.statedEnd = m.enforcedEnd(c)
		c.stated = append(c.stated, statement{lease, c.statedEnd})
	}
}

// acknowledge notes the number that s states, and forgets what its claims were told
// before the ends of which it has heard by now.
func (m *Model) acknowledge(s *session, heard uint64) {
	s.acked = max(s.acked, min(heard, s.leases))
	for _, c := range m.claims {
		if i := ackedIndex(c.stated, s.acked); c.ref.Session == s.id && i >= 0 {
			c.stated = slices.Delete(c.stated, 0, i)
		}
	}
}

// ackedIndex finds the last end that counts as heard: that of a lease which was heard,
// and all since the same. It is the index of that lease, or -1.
func ackedIndex(stated []statement, heard uint64) int {
	for i, s := range stated {
		same := !slices.ContainsFunc(stated[i:], func(later statement) bool { return later.end != s.end })
		if s.lease != 0 && s.lease <= heard && same {
			return i
		}
	}
	return -1
}

// reliedUntil is until when the holder of c may count on it, apart from its session.
func (m *Model) reliedUntil(c *claim) time.Duration {
	if m.session(c.ref.Session).acked == 0 {
		return c.statedEnd
	}
	latest := time.Duration(0)
	for _, s := range c.stated {
		latest = max(latest, s.end)
	}
	return latest
}
