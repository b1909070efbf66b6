package table

import "time"

// recordStatedEnd notes the end that an answer states of c: a lease by its number, or 0 for
// the answer to a claim (R12).
func (t *Table) recordStatedEnd(c *claim, lease uint64) {
	end := c.earliestEnd()
	switch {
	case end != c.stated:
		c.stated, c.statedIn = end, lease
	case c.unackedEnd == end || c.statedIn != 0 || lease == 0:
		return // nothing new is said
	default:
		c.statedIn = lease
	}
	if len(c.held) > 0 {
		c.unackedEnd = max(c.unackedEnd, end)
	}
	t.mark(c)
}

// acknowledge notes that s has heard the lease of that number, and so what it told and
// nothing has contradicted since.
func (t *Table) acknowledge(s *session, heard uint64) {
	heard = min(heard, s.leases)
	if heard <= s.acked {
		return
	}
	s.acked = heard
	t.markSession(s)
	for _, c := range s.claims { // order does not matter: each is looked at by itself
		if c.unackedEnd != c.stated && c.statedIn != 0 && c.statedIn <= heard {
			c.unackedEnd = c.stated
			t.mark(c)
		}
	}
}

// reliedUntil is until when c's holder may count on its hold, apart from its session:
// what it was told last, or, if it says what it hears, the latest that it may not
// have heard to be over (R12).
func (c *claim) reliedUntil() time.Duration {
	if c.session.acked == 0 {
		return c.stated
	}
	return c.unackedEnd
}
