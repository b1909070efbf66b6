package table

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// amend changes c to w, which has the same id (R16). A revision that c already has changes nothing.
// A higher revision may raise the priority, change limits, or convert the mode.
func (t *Table) amend(c *claim, w *lockkeeper.Want) error {
	if w.Revision < c.want.Revision {
		return nil // a late or repeated request
	}
	if w.Revision == c.want.Revision {
		if accepted := c.request(); !w.SameRequest(&accepted) {
			return lockkeeper.Invalid("claim %s was made for another request: use a new id, or a higher revision to amend it",
				c.ref())
		}
		return nil
	}
	if c.lapse != nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: "claim " + c.ref().String() +
			" can't be amended: it has lapsed, because its client stopped using it"}
	}
	converts, err := c.mayBecome(w)
	if err != nil {
		return err
	}
	switch {
	case converts && c.converting():
		t.giveUp(c, lockkeeper.Cancelled, "")
		t.adopt(c, w)
		t.settle()
	case converts && w.Targets[0].Mode == lockkeeper.ModeExclusive:
		t.upgrade(c, w)
	case converts:
		t.downgrade(c, w)
	default:
		t.raise(c, w)
	}
	return nil
}

// mayBecome checks that w differs from c's want only in fields that a client may amend, and reports
// whether w converts c.
func (c *claim) mayBecome(w *lockkeeper.Want) (converts bool, err error) {
	rest, accepted := *w, c.request()
	rest.Targets, rest.Priority = accepted.Targets, accepted.Priority
	modes := c.modes()
	converts = !slices.EqualFunc(w.Targets, modes, func(target lockkeeper.Target, m lockkeeper.Mode) bool {
		return target.Mode == m
	})
	if !c.waits || converts {
		rest.Wait = c.want.Wait // c waits for nothing, or is about to begin a new wait
	}
	switch {
	case !rest.SameRequest(&accepted) || !sameTargets(w, &accepted):
		return false,
			lockkeeper.Invalid("claim %s: only priority, limits and modes can be amended; make a new claim for the rest",
				c.ref())
	case w.Priority < c.want.Priority:
		return false, lockkeeper.Invalid("claim %s: its priority %d is never lowered (to %d)", c.ref(), c.want.Priority,
			w.Priority)
	case converts && c.waiting():
		return false,
			lockkeeper.Invalid("claim %s still waits: only a held claim can be converted; cancel it and make another", c.ref())
	case converts && (!uniform(modes) || w.Targets[0].Mode == lockkeeper.ModePermits ||
		slices.ContainsFunc(w.Targets, func(target lockkeeper.Target) bool { return target.Mode != w.Targets[0].Mode })):
		return false, lockkeeper.Invalid("claim %s: only a whole claim converts, from all shared to all exclusive or back",
			c.ref())
	case !c.waiting() && !slices.EqualFunc(w.Targets, accepted.Targets, func(a, b lockkeeper.Target) bool {
		return a.Limit == b.Limit
	}):
		return false, lockkeeper.Invalid("claim %s is held: its limit no longer matters and can't be changed", c.ref())
	}
	return converts, nil
}

// sameTargets reports whether v and w name the same targets in the same order, with the same units.
func sameTargets(v, w *lockkeeper.Want) bool {
	return slices.EqualFunc(v.Targets, w.Targets, func(a, b lockkeeper.Target) bool {
		return a.Path == b.Path && a.Units == b.Units
	})
}

// modes returns the modes of c's targets: the wanted ones while c converts, otherwise the granted
// ones.
func (c *claim) modes() []lockkeeper.Mode {
	var modes []lockkeeper.Mode
	if c.converting() {
		for target := range c.requested() {
			modes = append(modes, target.Mode)
		}
		return modes
	}
	for _, g := range c.grants() {
		modes = append(modes, g.Mode)
	}
	return modes
}

// uniform reports whether all modes are the same, and convertible.
func uniform(modes []lockkeeper.Mode) bool {
	return !slices.ContainsFunc(modes, func(m lockkeeper.Mode) bool {
		return m != modes[0] ||
			m == lockkeeper.ModePermits
	})
}

// adopt makes w the accepted request of c. If that raises c's priority, it marks the asks and waits
// that depend on the priority for a recheck.
func (t *Table) adopt(c *claim, w *lockkeeper.Want) {
	raised := w.Priority > c.want.Priority
	c.want = c.session().termsOf(w)
	if c.refused != 0 {
		c.own().refused = 0
	}
	t.mark(c)
	if raised {
		held := c.held()
		for i := range held {
			t.changeAbove(&held[i])
		}
		t.recheckAround(c)
	}
}

// upgrade makes c, which is held shared, wait to become exclusive (R14).
func (t *Table) upgrade(c *claim, w *lockkeeper.Want) {
	t.adopt(c, w)
	t.tickets++
	c.ticket = t.tickets
	c.own().converts, c.waits = t.entries(c, w.Targets, nil), true
	c.setUndone(lockkeeper.NoReason, "")
	t.beginWait(c)
}

// downgrade makes c, which is held exclusive, shared at once. c keeps its fence (R14).
func (t *Table) downgrade(c *claim, w *lockkeeper.Want) {
	t.adopt(c, w)
	held := c.held()
	for i := range held {
		t.drop(&held[i])
		for n, k := range held[i].places() {
			t.touch(n, k.set())
		}
	}
	for i := range held {
		held[i].kind, _ = kindOf(w.Targets[i].Mode)
		t.hold(&held[i])
	}
	c.setUndone(lockkeeper.NoReason, "")
	t.recordChange(c, Downgraded, lockkeeper.NoReason)
	t.settle()
}

// raise gives c the priority, limits and revision of w, which does not convert c.
func (t *Table) raise(c *claim, w *lockkeeper.Want) {
	waits := c.waits
	if waits {
		t.stopWaiting(c, true)
	}
	t.adopt(c, w)
	for _, v := range c.victims() {
		v.sortAsks()
		t.recordChange(v, AskChanged, lockkeeper.NoReason)
	}
	if waits {
		wanted := c.wanted()
		for i := range wanted {
			if p := &wanted[i]; p.kind == kindP {
				p.most = int32(limitOf(w.Targets, p.node.path))
			}
		}
		c.setPermits(w.Targets)
		t.startWaiting(c)
		t.maybeHopeless = append(t.maybeHopeless, c)
		t.recordChange(c, Queued, lockkeeper.NoReason)
	} else {
		t.recheckAround(c)
		t.recordChange(c, AskChanged, lockkeeper.NoReason)
	}
	t.deadlockSuspected = true
	t.settle()
}

// setPermits makes room for what c is granted, if it wants permits: its grants then say more than its
// entries.
func (c *claim) setPermits(targets []lockkeeper.Target) {
	permits := func(target lockkeeper.Target) bool { return target.Mode == lockkeeper.ModePermits }
	if !slices.ContainsFunc(targets, permits) {
		return
	}
	grants := make([]lockkeeper.Grant, len(targets)) // earlier statuses share the old ones
	for i, target := range targets {
		grants[i].Target = target
	}
	c.own().permits = grants
}

func limitOf(targets []lockkeeper.Target, path lockkeeper.Path) int {
	for _, target := range targets {
		if target.Path == path {
			return target.Limit
		}
	}
	return 0
}
