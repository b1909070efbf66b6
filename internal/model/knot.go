package model

import (
	"cmp"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// refuseKnot refuses the youngest claim of a knot, if there is one (R15).
func (m *Model) refuseKnot() bool {
	if len(m.line()) == 0 {
		return false
	}
	knot := m.imagine().knot()
	if len(knot) == 0 {
		return false
	}
	youngest := slices.MaxFunc(knot, func(a, b *claim) int { return cmp.Compare(a.ticket, b.ticket) })
	m.giveUp(m.claim(youngest.ref), lockkeeper.Deadlock)
	return true
}

// imagine plays what would happen if every owner that does not wait released
// all it has, again and again. What still waits then is stuck.
//
// The world of the imagination has no freezes, and no claims that one forbids:
// of a conversion that is forbidden the hold is there, but not the wait.
func (m *Model) imagine() *Model {
	world := &Model{}
	for _, c := range m.claims {
		image := *c
		if c.waits() && m.frozen(c) {
			image.wish = nil
		}
		if image.waits() || image.holds() {
			world.claims = append(world.claims, &image)
		}
	}
	for changed := true; changed; {
		changed = world.releaseIdle()
		for world.grantFirst() {
			changed = true
		}
	}
	return world
}

// releaseIdle releases all holds of owners without a waiting claim.
func (m *Model) releaseIdle() bool {
	n := len(m.claims)
	m.claims = slices.DeleteFunc(slices.Clone(m.claims), func(c *claim) bool {
		return !slices.ContainsFunc(m.claims, func(w *claim) bool { return w.owner == c.owner && w.waits() })
	})
	return len(m.claims) < n
}

// grantFirst grants the first claim in line that R5 allows.
func (m *Model) grantFirst() bool {
	for _, c := range m.line() {
		if !m.blocked(c) {
			c.held, c.wish = c.wish, nil
			return true
		}
	}
	return false
}

// knot is the stuck claims without those whose owner nobody stuck waits for.
func (m *Model) knot() []*claim {
	stuck := m.line()
	for {
		needed := slices.DeleteFunc(slices.Clone(stuck), func(c *claim) bool {
			return !m.needed(c.owner, stuck)
		})
		if len(needed) == len(stuck) {
			return stuck
		}
		stuck = needed
	}
}

// needed says whether one of the stuck claims waits for a claim of owner.
func (m *Model) needed(owner lockkeeper.Ref, stuck []*claim) bool {
	for _, s := range stuck {
		for _, c := range m.claims {
			if c.owner == owner && m.waitsFor(s, c) {
				return true
			}
		}
	}
	return false
}

// waitsFor says whether s waits for c: c is held or ahead of it in line, and
// incompatible with it.
func (m *Model) waitsFor(s, c *claim) bool {
	if s == c {
		return false
	}
	ahead := slices.Contains(m.waitingAhead(s), c)
	if incompatible(c.held, s.wish) || ahead && incompatible(c.wish, s.wish) {
		return true
	}
	for _, t := range permitsOf(s.wish) {
		if m.heldUnits(t.Path, s)+m.aheadUnits(t, s)+t.Units <= t.Limit {
			continue
		}
		if unitsOf(c.held, t.Path) > 0 || ahead && countedUnits(c, t) > 0 {
			return true
		}
	}
	return false
}
