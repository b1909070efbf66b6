package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// kind is what a claim holds, or waits with, on one path (R3).
type kind uint8

const (
	intentShared    kind = iota // IS: something shared below
	intentExclusive             // IX: something exclusive or permits below
	shared                      // S
	exclusive                   // X
	permits                     // P: as IX, and R7 among themselves
)

// compatible is the matrix of R3.
func compatible(a, b kind) bool {
	if a == permits {
		a = intentExclusive
	}
	if b == permits {
		b = intentExclusive
	}
	switch a {
	case intentShared:
		return b == intentShared || b == intentExclusive || b == shared
	case intentExclusive:
		return b == intentShared || b == intentExclusive
	case shared:
		return b == shared || b == intentShared
	}
	return false // exclusive, with nothing
}

// own is the kind of t on its own path, and above the one on its ancestors.
func own(t lockkeeper.Target) kind {
	switch t.Mode {
	case lockkeeper.ModeShared:
		return shared
	case lockkeeper.ModePermits:
		return permits
	}
	return exclusive
}

func above(t lockkeeper.Target) kind {
	if t.Mode == lockkeeper.ModeShared {
		return intentShared
	}
	return intentExclusive
}

// clash says whether two targets of different claims are incompatible by their
// kinds (R3). Only the deepest path where both have a kind can tell: on the
// paths above that both have intents, which agree with each other.
func clash(x, y lockkeeper.Target) bool {
	switch {
	case x.Path == y.Path:
		return !compatible(own(x), own(y))
	case x.Path.Covers(y.Path):
		return !compatible(own(x), above(y))
	case y.Path.Covers(x.Path):
		return !compatible(above(x), own(y))
	}
	return false
}

// incompatible says whether two claims clash by their kinds.
func incompatible(a, b []lockkeeper.Target) bool {
	for _, x := range a {
		for _, y := range b {
			if clash(x, y) {
				return true
			}
		}
	}
	return false
}

// class is the first key of the order (R4).
func (c *claim) class() int {
	switch {
	case c.converting():
		return 0
	case c.want.WriterPolicy == lockkeeper.Soft:
		return 2
	}
	return 1
}

// before is the order of the queue (R4).
func before(a, b *claim) int {
	return cmp.Or(
		cmp.Compare(a.class(), b.class()),
		cmp.Compare(b.want.Priority, a.want.Priority),
		cmp.Compare(a.ticket, b.ticket),
		cmp.Compare(a.ref.Session, b.ref.Session),
		cmp.Compare(a.ref.ID, b.ref.ID))
}

// queue returns every waiting claim in the order of R4.
func (m *Model) queue() []*claim {
	var line []*claim
	for _, c := range m.claims {
		if c.waits() {
			line = append(line, c)
		}
	}
	slices.SortFunc(line, before)
	return line
}

// holders is every held claim by fence.
func (m *Model) holders() []*claim {
	var holders []*claim
	for _, c := range m.claims {
		if c.holds() {
			holders = append(holders, c)
		}
	}
	slices.SortFunc(holders, func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
	return holders
}

// waitingAhead is every waiting claim that c must be compatible with (R5):
// those before it in the queue except soft ones (R9) and frozen ones (R18).
func (m *Model) waitingAhead(c *claim) []*claim {
	var ahead []*claim
	for _, w := range m.claims {
		if w.waits() && w != c && before(w, c) < 0 && !w.isSoft() && !m.frozen(w) {
			ahead = append(ahead, w)
		}
	}
	return ahead
}

func (c *claim) isSoft() bool { return c.class() == 2 }

// heldUnits is the units of path that claims other than c hold (R7).
func (m *Model) heldUnits(path lockkeeper.Path, c *claim) int {
	sum := 0
	for _, h := range m.claims {
		if h != c {
			sum += unitsOf(h.held, path)
		}
	}
	return sum
}

func unitsOf(targets []lockkeeper.Target, path lockkeeper.Path) int {
	for _, t := range targets {
		if t.Path == path && t.Mode == lockkeeper.ModePermits {
			return t.Units
		}
	}
	return 0
}

// aheadUnits is the units of t's path that waiting claims ahead of c want under
// a limit of at least t's (R7).
func (m *Model) aheadUnits(t lockkeeper.Target, c *claim) int {
	sum := 0
	for _, w := range m.waitingAhead(c) {
		sum += countedUnits(w, t)
	}
	return sum
}

// countedUnits is what the waiting claim w counts against the permits target t behind it.
func countedUnits(w *claim, t lockkeeper.Target) int {
	for _, u := range w.wish {
		if u.Path == t.Path && u.Mode == lockkeeper.ModePermits && u.Limit >= t.Limit {
			return u.Units
		}
	}
	return 0
}

// permitsOf is the permits targets of c's wish, in the order of paths.
func permitsOf(wish []lockkeeper.Target) []lockkeeper.Target {
	var all []lockkeeper.Target
	for _, t := range wish {
		if t.Mode == lockkeeper.ModePermits {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b lockkeeper.Target) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// blocked says whether c is incompatible with something ahead of it (R5 to R7).
func (m *Model) blocked(c *claim) bool {
	for _, h := range m.claims {
		if h != c && incompatible(h.held, c.wish) {
			return true
		}
	}
	for _, w := range m.waitingAhead(c) {
		if incompatible(w.wish, c.wish) {
			return true
		}
	}
	for _, t := range permitsOf(c.wish) {
		if m.heldUnits(t.Path, c)+m.aheadUnits(t, c)+t.Units > t.Limit {
			return true
		}
	}
	return false
}

// frozen says whether a freeze forbids the waiting claim c (R18).
func (m *Model) frozen(c *claim) bool {
	return slices.ContainsFunc(m.freezes, func(f *freeze) bool { return f.forbids(c) })
}

func (f *freeze) forbids(c *claim) bool {
	return incompatible([]lockkeeper.Target{{Path: f.path, Mode: lockkeeper.ModeExclusive}}, c.wish)
}

// resuming says whether c's session has yet to resume after a restart (R19).
func (m *Model) resuming(c *claim) bool {
	return m.session(c.ref.Session).resuming
}

// quietUntil is when c's quiet period has run, if no hold ends before (R9).
func (m *Model) quietUntil(c *claim) time.Duration {
	since := c.arrived
	for _, p := range m.past {
		if incompatible(p.held, c.wish) {
			since = max(since, p.end)
		}
	}
	return since + c.want.Quiet
}

// mustBeQuiet says whether c's quiet period has yet to run; a conversion has none.
func (m *Model) mustBeQuiet(c *claim) bool {
	return !c.converting() && m.quietUntil(c) > m.now
}

// grantable is the grant rule (R5) with all that may forbid a grant besides.
func (m *Model) grantable(c *claim) bool {
	return !m.blocked(c) && !m.frozen(c) && !m.resuming(c) && !m.mustBeQuiet(c)
}

// settle is, again and again until nothing changes: all grants, then the waits that
// are over, then deadlocks, then the ask sets, then the first thief that may take (R20).
func (m *Model) settle() {
	for {
		for m.grantOne() || m.endTries() || m.endHopeless() || m.refuseDeadlock() {
		}
		m.updateAsks()
		if !m.takeOne() {
			break
		}
	}
	m.notifyAsks()
}

// grantOne grants the first waiting claim that can be granted.
func (m *Model) grantOne() bool {
	for _, c := range m.queue() {
		if m.grantable(c) {
			m.grant(c)
			return true
		}
	}
	return false
}

// endTries ends what would not wait (R8).
func (m *Model) endTries() bool {
	changed := false
	for _, c := range m.queue() {
		if c.want.Wait == 0 {
			m.giveUp(c, lockkeeper.TimedOut)
			changed = true
		}
	}
	return changed
}

// grant makes c held, or its conversion done (R13, R14).
func (m *Model) grant(c *claim) {
	c.unconfirmed = m.meetsUnacked(c)
	c.grants = nil
	for _, t := range c.wish {
		g := lockkeeper.Grant{Target: t}
		if t.Mode == lockkeeper.ModePermits {
			g.InUse = m.heldUnits(t.Path, c) + t.Units
			if t.Units == 1 {
				g.Slot = m.freeSlot(t)
			}
		}
		c.grants = append(c.grants, g)
	}
	if !c.holds() {
		c.granted = m.now
		if c.want.MaxHold == 0 {
			c.stated = []statement{{0, forever}}
		}
	}
	c.held, c.wish = c.wish, nil
	m.fence++
	c.fence = m.fence
	m.event(table.Event{Kind: table.Granted, Ref: c.ref, Fence: c.fence})
}

// freeSlot is the lowest slot that neither a held target has nor a ghost; if
// there is none up to the target's limit, the lowest that no held one has (R7).
func (m *Model) freeSlot(t lockkeeper.Target) int {
	for slot := 1; slot <= t.Limit; slot++ {
		if !m.slotHeld(t.Path, slot) && !m.slotHaunted(t.Path, slot) {
			return slot
		}
	}
	slot := 1
	for m.slotHeld(t.Path, slot) {
		slot++
	}
	return slot
}

func (m *Model) slotHeld(path lockkeeper.Path, slot int) bool {
	return slices.ContainsFunc(m.claims, func(c *claim) bool { return hasSlot(c, path, slot) })
}

func (m *Model) slotHaunted(path lockkeeper.Path, slot int) bool {
	return slices.ContainsFunc(m.unacked, func(g *unackedHold) bool { return hasSlot(g.claim, path, slot) })
}

func hasSlot(c *claim, path lockkeeper.Path, slot int) bool {
	return slices.ContainsFunc(c.grants, func(g lockkeeper.Grant) bool { return g.Path == path && g.Slot == slot })
}

// meetsUnacked says whether c, if granted now, would be incompatible with unacknowledged holds
// as if they were held (R12).
func (m *Model) meetsUnacked(c *claim) bool {
	for _, g := range m.unacked {
		if incompatible(g.held, c.wish) {
			return true
		}
	}
	for _, t := range permitsOf(c.wish) {
		unacked := 0
		for _, g := range m.unacked {
			unacked += unitsOf(g.held, t.Path)
		}
		if m.heldUnits(t.Path, c)+unacked+t.Units > t.Limit {
			return true
		}
	}
	return false
}
