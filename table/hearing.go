package table

import "time"

// tell notes the end that an answer states of c: a lease by its number, or 0 for
// the answer to a claim (R12).
func (t *Table) tell(c *claim, lease uint64) {
	end := c.statedEnd()
	switch {
	case end != c.told:
		c.told, c.toldIn = end, lease
	case c.believed == end || c.toldIn != 0 || lease == 0:
		return // nothing new is said
	default:
		c.toldIn = lease
	}
	if len(c.held) > 0 {
		c.believed = max(c.believed, end)
	}
	t.mark(c)
}

// hear notes that s has heard the lease of that number, and so what it told and
// nothing has contradicted since.
func (t *Table) hear(s *session, heard uint64) {
	heard = min(heard, s.leases)
	if heard <= s.heard {
		return
	}
	s.heard = heard
	t.markSession(s)
	for _, c := range s.claims { // order does not matter: each is looked at by itself
		if c.believed != c.told && c.toldIn != 0 && c.toldIn <= heard {
			c.believed = c.told
			t.mark(c)
		}
	}
}

// countedOn is until when c's holder may count on its hold, apart from its session:
// what it was told last, or, if it says what it hears, the latest that it may not
// have heard to be over (R12).
func (c *claim) countedOn() time.Duration {
	if c.session.heard == 0 {
		return c.told
	}
	return c.believed
}
