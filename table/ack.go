package table

import "time"

// recordStatedEnd records the end of c that the engine states in an answer. lease is the number of
// the lease, or 0 for the answer to a claim (R12).
//
// Invariant: if c is held and c.unackedEnd != c.stated, c's session has not acknowledged c.stated.
func (t *Table) recordStatedEnd(c *claim, lease uint64) {
	end := c.earliestEnd()
	switch {
	case end != c.stated:
		own := c.own()
		own.stated, own.statedIn = end, lease
	case c.unackedEnd == end || c.statedIn != 0 || lease == 0:
		return // the answer states nothing new
	default:
		c.own().statedIn = lease
	}
	if c.holds {
		c.own().unackedEnd = max(c.unackedEnd, end)
	}
	t.mark(c)
}

// acknowledge records that the client of s received the lease with number lease. The client then
// knows each end that this lease stated, unless a later answer changed it (R12).
func (t *Table) acknowledge(s *session, lease uint64) {
	lease = min(lease, s.leases)
	if lease <= s.acked {
		return
	}
	s.acked = lease
	t.markSession(s)
	for _, c := range s.claims.all() {
		if c.unackedEnd != c.stated && c.statedIn != 0 && c.statedIn <= lease {
			c.own().unackedEnd = c.stated
			t.mark(c)
		}
	}
}

// reliedUntil returns the instant until which c's holder may rely on its hold, ignoring the promise
// to its session: the latest end that it has not acknowledged, or the last stated end if its
// session never acknowledges (R12).
func (c *claim) reliedUntil() time.Duration {
	if c.session().acked == 0 {
		return c.stated
	}
	return c.unackedEnd
}
