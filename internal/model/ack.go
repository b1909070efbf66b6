package model

import (
	"slices"
	"time"
)

// recordStatedEnd records the end that an answer states for c. lease is the number of the lease, or 0 for
// the answer to a claim (R12).
func (m *Model) recordStatedEnd(c *claim, lease uint64) {
	c.statedEnd = forever
	if c.holds() {
		c.statedEnd = m.enforcedEnd(c)
		c.stated = append(c.stated, statement{lease, c.statedEnd})
	}
}

// acknowledge records the number that s states, and forgets the ends that its claims were stated before
// those that it acknowledges.
func (m *Model) acknowledge(s *session, acked uint64) {
	s.acked = max(s.acked, min(acked, s.leases))
	for _, c := range m.claims {
		if i := ackedIndex(c.stated, s.acked); c.ref.Session == s.id && i >= 0 {
			c.stated = slices.Delete(c.stated, 0, i)
		}
	}
}

// ackedIndex returns the index of the lease by which the latest end was acknowledged: a lease up to acked
// since which all statements are the same; -1 if there is none.
func ackedIndex(stated []statement, acked uint64) int {
	for i, s := range stated {
		same := !slices.ContainsFunc(stated[i:], func(later statement) bool { return later.end != s.end })
		if s.lease != 0 && s.lease <= acked && same {
			return i
		}
	}
	return -1
}

// reliedUntil returns until when the holder of c may rely on it, its session's promise left aside.
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
