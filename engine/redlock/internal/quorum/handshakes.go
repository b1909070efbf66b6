package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// handshakes are the durations of the latest polite steals.
type handshakes struct {
	took []time.Duration // a ring
	next int
}

const (
	mostHandshakes = 128
	minHandshakes  = 8 // so many are needed for a percentile
)

// follow records since when a majority asks the holders for c.
func (h *handshakes) follow(p *Party, c *claim, now time.Duration) {
	n := 0
	for i := range c.at {
		if st := c.at[i].state; st != nil && st.Asking {
			n++
		}
	}
	switch {
	case n < p.majority:
		c.asking = 0
	case c.asking == 0:
		c.asking = now
	}
}

// granted records a handshake if c was granted because its holders released: before the end of its
// asks. It returns its duration; 0 if there was none.
func (h *handshakes) granted(c *claim, now time.Duration) time.Duration {
	if c.asking == 0 {
		return 0
	}
	for i := range c.at {
		b := &c.at[i]
		if b.state != nil && b.state.AskEnd != 0 && b.stateSent+(b.state.AskEnd-b.now).duration() <= now {
			return 0 // it may have been taken
		}
	}
	took := now - c.asking
	if len(h.took) < mostHandshakes {
		h.took = append(h.took, took)
		return took
	}
	h.took[h.next] = took
	h.next = (h.next + 1) % mostHandshakes
	return took
}

// allowed returns the wait that measured handshakes suggest, as After and AfterTTL of a record: twice
// their 99th percentile, or the whole TTL of the victim while there are too few.
func (h *handshakes) allowed() (after Micros, afterTTL int) {
	if len(h.took) < minHandshakes {
		return 0, lockkeeper.MaxAfterTTL
	}
	all := slices.Clone(h.took)
	slices.Sort(all)
	return micros(2 * all[(len(all)*99-1)/100]), 0
}
