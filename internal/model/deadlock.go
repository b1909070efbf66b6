package model

import (
	"cmp"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// refuseDeadlock refuses the youngest claim of a deadlock, if there is one (R15).
func (m *Model) refuseDeadlock() bool {
	if len(m.queue()) == 0 {
		return false
	}
	set := m.simulateReleases().deadlockSet()
	if len(set) == 0 {
		return false
	}
	youngest := slices.MaxFunc(set, func(a, b *claim) int { return cmp.Compare(a.ticket, b.ticket) })
	m.giveUp(m.claim(youngest.ref), lockkeeper.Deadlock)
	return true
}

// inside says whether c is inside d (R15): whether the names lead from c to d,
// from one live claim to the next.
func (m *Model) inside(c, d *claim) bool {
	var been []*claim
	for up := m.claim(c.want.Inside); up != nil && !slices.Contains(been, up); up = m.claim(up.want.Inside) {
		if up == d {
			return true
		}
		been = append(been, up)
	}
	return false
}

// simulateReleases returns a copy of the model in which, again and again, every hold that does not wait,
// and inside which no claim waits, was released. The claims that still wait in it are stuck.
//
// The copy has no freezes, and no claims that a freeze forbids: of a conversion that is forbidden it
// has the hold, but not the wait.
func (m *Model) simulateReleases() *Model {
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

// releaseIdle releases all holds that don't wait and inside which no claim waits.
func (m *Model) releaseIdle() bool {
	var busy []*claim
	for _, c := range m.claims {
		inC := func(w *claim) bool { return w.waits() && m.inside(w, c) }
		if c.waits() || slices.ContainsFunc(m.claims, inC) {
			busy = append(busy, c)
		}
	}
	released := len(busy) < len(m.claims)
	m.claims = busy
	return released
}

// grantFirst grants the first waiting claim that R5 allows.
func (m *Model) grantFirst() bool {
	for _, c := range m.queue() {
		if !m.blocked(c) {
			c.held, c.wish = c.wish, nil
			return true
		}
	}
	return false
}

// deadlockSet returns the stuck claims that a stuck claim needs.
func (m *Model) deadlockSet() []*claim {
	stuck := m.queue()
	for {
		needed := slices.DeleteFunc(slices.Clone(stuck), func(c *claim) bool { return !m.needed(c, stuck) })
		if len(needed) == len(stuck) {
			return stuck
		}
		stuck = needed
	}
}

// needed says whether one of the stuck claims waits for d, or for a claim that d
// is inside of.
func (m *Model) needed(d *claim, stuck []*claim) bool {
	for _, s := range stuck {
		for _, c := range m.claims {
			if (c == d || m.inside(d, c)) && m.waitsFor(s, c) {
				return true
			}
		}
	}
	return false
}

// waitsFor says whether s waits for c: c is held or ahead of it in the queue, and
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
