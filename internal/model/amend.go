package model

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// amend changes c to the higher revision w, or refuses (R16). It changes
// nothing if it refuses.
func (m *Model) amend(c *claim, w *lockkeeper.Want) error {
	if c.lapse != nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld}
	}
	if !sameButAmendable(&c.want, w) || w.Priority < c.want.Priority {
		return refuseAmendment(c)
	}
	var change func()
	switch {
	case !c.holds():
		if w.Wait != c.want.Wait || !sameButLimits(c.wish, w.Targets) {
			return refuseAmendment(c)
		}
		change = func() { c.wish = w.Targets }
	case !samePaths(c.held, w.Targets):
		return refuseAmendment(c)
	case all(c.held, lockkeeper.ModeShared) && all(w.Targets, lockkeeper.ModeExclusive):
		if !c.converting() {
			change = func() { m.convert(c, w) }
		} else if w.Wait != c.want.Wait {
			return refuseAmendment(c)
		}
	case all(c.held, lockkeeper.ModeShared) && all(w.Targets, lockkeeper.ModeShared):
		if c.converting() {
			change = func() { m.giveUp(c, lockkeeper.Cancelled) }
		}
	case all(c.held, lockkeeper.ModeExclusive) && all(w.Targets, lockkeeper.ModeShared):
		change = func() { m.downgrade(c, w) }
	case !slices.Equal(c.held, w.Targets):
		return refuseAmendment(c)
	}
	c.want = *w
	if change != nil {
		change()
	}
	return nil
}

func refuseAmendment(c *claim) error {
	return lockkeeper.Invalid("claim %s can't be amended so", c.ref)
}

// sameButAmendable: only targets, wait and priority may differ at all.
func sameButAmendable(a, b *lockkeeper.Want) bool {
	x := *b
	x.Targets, x.Wait, x.Priority = a.Targets, a.Wait, a.Priority
	return x.SameRequest(a)
}

func sameButLimits(a, b []lockkeeper.Target) bool {
	return slices.EqualFunc(a, b, func(x, y lockkeeper.Target) bool {
		return x.Path == y.Path && x.Mode == y.Mode && x.Units == y.Units
	})
}

func samePaths(a, b []lockkeeper.Target) bool {
	return slices.EqualFunc(a, b, func(x, y lockkeeper.Target) bool { return x.Path == y.Path })
}

func all(targets []lockkeeper.Target, mode lockkeeper.Mode) bool {
	return !slices.ContainsFunc(targets, func(t lockkeeper.Target) bool { return t.Mode != mode })
}

// convert makes a shared hold wait to be exclusive, at the head of the queue (R14).
func (m *Model) convert(c *claim, w *lockkeeper.Want) {
	c.wish = w.Targets
	c.bound = after(m.now, w.Wait)
	c.undone = lockkeeper.NoReason
	m.draw(c)
}

// downgrade makes an exclusive hold shared at once; it keeps its fence (R13, R14).
func (m *Model) downgrade(c *claim, w *lockkeeper.Want) {
	c.held = w.Targets
	c.grants = nil
	for _, t := range w.Targets {
		c.grants = append(c.grants, lockkeeper.Grant{Target: t})
	}
	m.event(table.Event{Kind: table.Downgraded, Ref: c.ref})
}
