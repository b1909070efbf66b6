package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// holdTime is how long holds of one path lately lasted (R17).
type holdTime struct {
	path  lockkeeper.Path
	lasts time.Duration
	moved time.Duration // when it was moved last
}

// mostCounted is the most claims of which an estimate is made.
const mostCounted = 1024

// recordHoldTime takes in the end of a hold.
func (m *Model) recordHoldTime(c *claim, reason lockkeeper.Reason) {
	if reason != lockkeeper.Released && reason != lockkeeper.Yielded && reason != lockkeeper.Overdue {
		return
	}
	duration := m.now - c.granted
	for _, t := range c.held {
		i := slices.IndexFunc(m.holdTimes, func(p holdTime) bool { return p.path == t.Path })
		if i < 0 {
			m.holdTimes = append(m.holdTimes, holdTime{path: t.Path, lasts: duration, moved: m.now})
			continue
		}
		m.holdTimes[i].lasts += (duration - m.holdTimes[i].lasts) / 4
		m.holdTimes[i].moved = m.now
	}
	slices.SortFunc(m.holdTimes, func(a, b holdTime) int {
		return cmp.Or(cmp.Compare(a.moved, b.moved), cmp.Compare(a.path, b.path))
	})
	if n := len(m.holdTimes) - table.MaxHoldTimes; n > 0 {
		m.holdTimes = slices.Delete(m.holdTimes, 0, n)
	}
}

// expected is the expected length of a hold of c; 0 if it is unknown.
func (m *Model) expected(c *claim) time.Duration {
	length := c.want.Expected
	for _, p := range m.holdTimes {
		if c.want.Expected == 0 && slices.ContainsFunc(c.want.Targets, func(t lockkeeper.Target) bool {
			return t.Path == p.path
		}) {
			length = max(length, p.lasts)
		}
	}
	if c.want.MaxHold != 0 {
		length = min(length, c.want.MaxHold+c.want.Grace)
	}
	return length
}

// leftOf is what is left of a hold; forever if that is unknown.
func (m *Model) leftOf(h *claim) time.Duration {
	left := forever
	if expected, age := m.expected(h), m.now-h.granted; expected > 0 && age <= expected {
		left = expected - age
	}
	if a := m.notifiedAsk(h); a.reason != lockkeeper.NoReason {
		left = min(left, m.left(a.end))
	}
	if h.lapse != nil {
		left = min(left, m.left(h.lapse.end))
	}
	return left
}

// estimate is about how long c will wait; 0 if that is unknown (R17).
func (m *Model) estimate(c *claim) time.Duration {
	counted := m.counted(c)
	if c.isSoft() || m.frozen(c) || m.resuming(c) || len(counted) > mostCounted {
		return 0
	}
	rest := m.restOf(c)
	if len(counted) > 0 {
		rest = max(rest, m.restOf(counted[0]))
	}
	turns, ok := m.turns(counted)
	if !ok || rest == forever || rest+turns > lockkeeper.MaxDuration {
		return 0
	}
	return rest + turns
}

// restOf is how long holds are in the way of the waiting claim c; forever if that is unknown.
func (m *Model) restOf(c *claim) time.Duration {
	rest := time.Duration(0)
	var inTheWay []*claim
	for _, h := range m.claims {
		if h != c && incompatible(h.held, c.wish) {
			rest = max(rest, m.leftOf(h))
			inTheWay = append(inTheWay, h)
		}
	}
	for _, t := range permitsOf(c.wish) {
		if m.heldUnits(t.Path, c)+t.Units <= t.Limit {
			continue
		}
		rest = max(rest, m.fitsAfter(t, c))
		for _, h := range m.claims {
			if h != c && unitsOf(h.held, t.Path) > 0 && !slices.Contains(inTheWay, h) {
				inTheWay = append(inTheWay, h)
			}
		}
	}
	if len(inTheWay) > mostCounted {
		return forever
	}
	return rest
}

// fitsAfter is the shortest time in which so many holds of permits of t's path
// will have ended that t fits beside the others.
func (m *Model) fitsAfter(t lockkeeper.Target, c *claim) time.Duration {
	shortest := forever
	for _, last := range m.claims {
		after, units := m.leftOf(last), 0
		for _, h := range m.claims {
			if h != c && m.leftOf(h) > after {
				units += unitsOf(h.held, t.Path)
			}
		}
		if last != c && unitsOf(last.held, t.Path) > 0 && units+t.Units <= t.Limit {
			shortest = min(shortest, after)
		}
	}
	return shortest
}

// turns is how long those counted ahead will take; false if that is unknown.
func (m *Model) turns(counted []*claim) (time.Duration, bool) {
	sum := time.Duration(0)
	var together []*claim // next to each other, and each compatible with the one before
	for _, w := range counted {
		length := m.expected(w)
		if length == 0 || sum > lockkeeper.MaxDuration {
			return 0, false
		}
		if permits := permitsOf(w.wish); len(permits) == len(w.wish) {
			part := time.Duration(0)
			for _, t := range permits {
				part = max(part, roundedUp(length, t.Units, t.Limit))
			}
			sum += part
			continue
		}
		if n := len(together); n > 0 && incompatible(together[n-1].wish, w.wish) {
			together = nil
		}
		sum -= m.longest(together)
		together = append(together, w)
		sum += m.longest(together)
	}
	return sum, true
}

func (m *Model) longest(claims []*claim) time.Duration {
	longest := time.Duration(0)
	for _, c := range claims {
		longest = max(longest, m.expected(c))
	}
	return longest
}

// roundedUp is d times units divided by limit.
func roundedUp(d time.Duration, units, limit int) time.Duration {
	part := d * time.Duration(units)
	if part%time.Duration(limit) > 0 {
		return part/time.Duration(limit) + 1
	}
	return part / time.Duration(limit)
}
