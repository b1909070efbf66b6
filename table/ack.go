package table

import "time"

// recordStatedEnd records the end of c that an answer states. lease is the number of the lease, or 0
// for the answer to a claim (R12).
//
// Invariant: if c is held and c.unackedEnd != c.stated, c's session has not acknowledged c.stated.
func (t *Table) recordStatedEnd(c *claim, lease uint64) {
	end := c.earliestEnd()
	switch {
	case end != c.stated:
		c.stated, c.statedIn = end, lease
	case c.unackedEnd == end || c.statedIn != 0 || lease == 0:
		return // the answer states nothing new
	default:
		c.statedIn = lease
	}
	if len(c.held) > 0 {
		c.unackedEnd = max(c.unackedEnd, end)
	}
	t.mark(c)
}

// acknowledge records that the client of s received the lease of that number: it knows the ends that
// this lease stated and no later answer changed (R12).
func (t *Table) acknowledge(s *session, lease uint64) {
	lease = min(lease, s.leases)
	if lease <= s.acked {
		return
	}
	s.acked = lease
	t.markSession(s)
	for _, c := range s.claims { // order does not matter: each claim is independent
		if c.unackedEnd != c.stated && c.statedIn != 0 && c.statedIn <= lease {
			c.unackedEnd = c.stated
			t.mark(c)
		}
	}
}

// reliedUntil returns until when c's holder may rely on its hold, its session's promise left aside:
// the latest end that it has not acknowledged, or the last stated end if its session never
// acknowledges (R12).
func (c *claim) reliedUntil() time.Duration {
	if c.session.acked == 0 {
		return c.stated
	}
	return c.unackedEnd
}
