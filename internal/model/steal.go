package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// ask is one holder asked to yield by one waiting claim (R10).
type ask struct {
	thief, holder *claim
	end           time.Duration // forever for a request only
}

// asked is the ask of which a holder is notified: the one that ends first.
type asked struct {
	by     lockkeeper.Ref
	label  lockkeeper.Label
	reason lockkeeper.Reason // NoReason: none
	end    time.Duration
}

// askSet is the holders that t asks to yield (R10).
func (m *Model) askSet(t *claim) []*claim {
	if t.want.Steal == lockkeeper.NoSteal || m.frozen(t) || m.resuming(t) {
		return nil
	}
	for _, w := range m.waitingAhead(t) {
		if incompatible(w.wish, t.wish) {
			return nil
		}
	}
	var set []*claim
	for _, h := range m.holders() {
		if h != t && incompatible(h.held, t.wish) {
			if !m.robbable(h, t) {
				return nil
			}
			set = append(set, h)
		}
	}
	for _, p := range permitsOf(t.wish) {
		more, ok := m.askForUnits(t, p, set)
		if !ok {
			return nil
		}
		set = append(set, more...)
	}
	return set
}

// robbable reports whether the thief may rob h: never an equal, or a hold that it is inside of.
func (m *Model) robbable(h, thief *claim) bool {
	return h.want.Priority < thief.want.Priority && !m.inside(thief, h)
}

// askForUnits is whom t asks besides set so that enough units of its target p
// would be free. It is false if that can't be.
func (m *Model) askForUnits(t *claim, p lockkeeper.Target, set []*claim) ([]*claim, bool) {
	held := 0
	var candidates []*claim
	for _, h := range m.holders() {
		units := unitsOf(h.held, p.Path)
		if h == t || units == 0 || slices.Contains(set, h) {
			continue
		}
		held += units
		if m.robbable(h, t) {
			candidates = append(candidates, h)
		}
	}
	ahead := m.aheadUnits(p, t)
	missing := held + ahead + p.Units - p.Limit
	if missing <= 0 {
		return nil, true
	}
	if ahead > 0 {
		return nil, false
	}
	slices.SortFunc(candidates, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.want.Priority, b.want.Priority), cmp.Compare(b.fence, a.fence))
	})
	return fewestUnits(candidates, p.Path, missing)
}

// fewestUnits is the set of candidates with the smallest sum of units that is
// at least missing, and of such sets the first: each candidate is taken in turn
// if a smallest set can still be completed with it. If that search is too long, it takes
// each until they suffice.
func fewestUnits(candidates []*claim, path lockkeeper.Path, missing int) ([]*claim, bool) {
	if longSearch(candidates, path, missing) {
		return untilEnough(candidates, path, missing)
	}
	least, ok := leastSum(candidates, path, missing)
	if !ok {
		return nil, false
	}
	var set []*claim
	taken := 0
	for i, c := range candidates {
		if taken >= missing {
			break
		}
		with := taken + unitsOf(c.held, path)
		rest, ok := leastSum(candidates[i+1:], path, missing-with)
		if ok && with+rest == least {
			set = append(set, c)
			taken = with
		}
	}
	return set, true
}

// longSearch reports whether there are more than 64 candidates, or more than 64 different
// sums of units below missing that sets of them make.
func longSearch(candidates []*claim, path lockkeeper.Path, missing int) bool {
	sums := map[int]bool{0: true}
	for _, c := range candidates {
		for sum := range maps.Clone(sums) {
			if with := sum + unitsOf(c.held, path); with < missing {
				sums[with] = true
			}
		}
		if len(sums) > 64 {
			return true
		}
	}
	return len(candidates) > 64
}

// untilEnough takes candidates in their order until they have missing units.
func untilEnough(candidates []*claim, path lockkeeper.Path, missing int) ([]*claim, bool) {
	for i, c := range candidates {
		if missing -= unitsOf(c.held, path); missing <= 0 {
			return candidates[:i+1], true
		}
	}
	return nil, false
}

// leastSum is the smallest sum of units of a set of candidates that is at least
// missing, by trying every set. It is false if all together have too few.
func leastSum(candidates []*claim, path lockkeeper.Path, missing int) (int, bool) {
	if missing <= 0 {
		return 0, true
	}
	if len(candidates) == 0 {
		return 0, false
	}
	units := unitsOf(candidates[0].held, path)
	with, okWith := leastSum(candidates[1:], path, missing-units)
	without, okWithout := leastSum(candidates[1:], path, missing)
	with += units
	switch {
	case okWith && okWithout:
		return min(with, without), true
	case okWith:
		return with, true
	}
	return without, okWithout
}

// updateAsks determines all asks: new ones begin, those that still stand keep their
// end, the others are withdrawn.
func (m *Model) updateAsks() {
	var asks []ask
	for _, t := range m.queue() {
		for _, h := range m.askSet(t) {
			asks = append(asks, m.askOf(t, h))
		}
	}
	m.asks = asks
}

func (m *Model) askOf(t, h *claim) ask {
	if a, ok := m.standing(t, h); ok {
		return a
	}
	a := ask{thief: t, holder: h, end: forever}
	if t.want.Steal == lockkeeper.Take {
		ttl := m.session(h.ref.Session).ttl
		if t.want.AfterTTL == 0 {
			a.end = m.now + t.want.After
		} else if part := time.Duration(t.want.AfterTTL); ttl == 0 {
			a.end = m.now + lockkeeper.DefaultTTL/1000*part
		} else {
			a.end = m.now + ttl/1000*part + ttl%1000*part/1000
		}
		if ttl != 0 {
			a.end = min(a.end, m.now+ttl)
		}
	}
	return a
}

func (m *Model) standing(t, h *claim) (ask, bool) {
	for _, a := range m.asks {
		if a.thief == t && a.holder == h {
			return a, true
		}
	}
	return ask{}, false
}

// takeOne lets the first thief in the queue take whose asks have all ended:
// the victims end and the thief is granted, in one step. A thief that asks nobody
// takes nothing.
func (m *Model) takeOne() bool {
	for _, t := range m.queue() {
		var victims []*claim
		due := true
		for _, a := range m.asks {
			if a.thief == t {
				victims = append(victims, a.holder)
				due = due && a.end <= m.now
			}
		}
		if len(victims) == 0 || !due {
			continue
		}
		for _, h := range victims {
			m.end(h, lockkeeper.Stolen)
		}
		m.grant(t)
		return true
	}
	return false
}

// notifiedAsk is what the held claim c is asked: of everything the one with the
// earliest end, an operator's before an overdue one before those of the line.
func (m *Model) notifiedAsk(c *claim) asked {
	var all []asked
	if c.operator != nil {
		all = append(all, asked{label: c.operator.by, reason: lockkeeper.Revoked, end: c.operator.end})
	}
	if c.overdueAsk() <= m.now {
		all = append(all, asked{reason: lockkeeper.Overdue, end: c.overdueEnd()})
	}
	for _, t := range m.queue() {
		if a, ok := m.standing(t, c); ok {
			all = append(all, asked{by: t.ref, label: t.want.Label, reason: lockkeeper.Stolen, end: a.end})
		}
	}
	if len(all) == 0 {
		return asked{}
	}
	return slices.MinFunc(all, func(a, b asked) int { return cmp.Compare(a.end, b.end) })
}

// notifyAsks notes for every holder what it is asked now, and that it changed.
func (m *Model) notifyAsks() {
	for _, c := range m.holders() {
		if now := m.notifiedAsk(c); now != c.asked {
			c.asked = now
			m.event(table.Event{Kind: table.AskChanged, Ref: c.ref})
		}
	}
}

// enforcedEnd is when c ends at the latest for what it was asked, or will be.
func (m *Model) enforcedEnd(c *claim) time.Duration {
	end := min(c.overdueEnd(), c.operatorEnd(), c.lapsedEnd())
	for _, a := range m.asks {
		if a.holder == c {
			end = min(end, a.end)
		}
	}
	return end
}
