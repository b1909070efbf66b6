package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// List is every live claim and freeze: holds by fence, the queue in the order of
// R4, freezes by path. A conversion is listed once, as the hold that it is.
// Blockers, Change and Text are left out.
func (m *Model) List() []lockkeeper.Status {
	var list []lockkeeper.Status
	for _, c := range m.holders() {
		list = append(list, m.status(c))
	}
	for _, c := range m.queue() {
		if !c.holds() {
			list = append(list, m.status(c))
		}
	}
	for _, f := range m.frozenPaths() {
		list = append(list, m.freezeStatus(f))
	}
	return list
}

// frozenPaths is the freezes by path.
func (m *Model) frozenPaths() []*freeze {
	freezes := slices.Clone(m.freezes)
	slices.SortFunc(freezes, func(a, b *freeze) int { return cmp.Compare(a.path, b.path) })
	return freezes
}

func (m *Model) status(c *claim) lockkeeper.Status {
	s := lockkeeper.Status{
		Ref: c.ref, Inside: c.want.Inside, Revision: c.want.Revision, Reason: c.undone,
		Priority: c.want.Priority, Label: c.want.Label, Ticket: c.ticket,
		Fence: c.fence, Unconfirmed: c.unconfirmed,
	}
	switch {
	case c.reason != lockkeeper.NoReason:
		s.State, s.Reason = lockkeeper.Ended, c.reason
	case c.holds():
		s.State = lockkeeper.Held
		s.Converting = c.converting()
		s.Asked, s.Lapsed = m.askedStatus(c), c.lapse != nil
		s.Age = m.now - c.granted
		s.Left = m.left(min(c.announcedEnd(), m.enforcedEnd(c)))
	default:
		s.State = lockkeeper.Waiting
		s.Age = m.now - c.arrived
		s.Left = m.left(c.bound)
	}
	s.Grants = c.grants
	if !c.holds() {
		for _, t := range c.want.Targets {
			s.Grants = append(s.Grants, lockkeeper.Grant{Target: t})
		}
	}
	if c.reason == lockkeeper.NoReason && c.waits() {
		s.Position, s.ETA, s.Waits = m.position(c), m.estimate(c), m.waitReasons(c)
	}
	return s
}

func (m *Model) askedStatus(c *claim) *lockkeeper.Asked {
	a := m.notifiedAsk(c)
	if a.reason == lockkeeper.NoReason {
		return nil
	}
	all := &lockkeeper.Asked{By: a.by, Label: a.label, Reason: a.reason, Left: m.left(a.end)}
	if a.end != forever {
		all.EndsAt = a.end
	}
	return all
}

// left is the time until end; an end that has passed leaves none.
func (m *Model) left(end time.Duration) time.Duration {
	if end == forever {
		return forever
	}
	return max(0, end-m.now)
}

func (m *Model) freezeStatus(f *freeze) lockkeeper.Status {
	s := lockkeeper.Status{
		Ref: f.ref, Revision: f.want.Revision, State: lockkeeper.Freezing, Reason: f.reason,
		Priority: f.want.Priority, Label: f.want.Label, Age: m.now - f.since, Left: m.left(f.end),
		Grants: []lockkeeper.Grant{{Target: lockkeeper.Target{Path: f.path, Mode: lockkeeper.ModeExclusive}}},
	}
	if f.reason != lockkeeper.NoReason {
		s.State = lockkeeper.Ended
	}
	return s
}

// position returns c's position in the queue (R17).
func (m *Model) position(c *claim) int {
	return 1 + len(m.counted(c))
}

// counted returns the claims ahead that c's position counts, in the order of the queue.
func (m *Model) counted(c *claim) []*claim {
	var counted []*claim
	for _, w := range m.waitingAhead(c) {
		if incompatible(w.wish, c.wish) || m.sharesPermits(w, c) {
			counted = append(counted, w)
		}
	}
	slices.SortFunc(counted, before)
	return counted
}

// sharesPermits says whether w, ahead of c, counts against a permits target of c.
func (m *Model) sharesPermits(w, c *claim) bool {
	return slices.ContainsFunc(permitsOf(c.wish), func(t lockkeeper.Target) bool { return countedUnits(w, t) > 0 })
}

// waitReasons is every reason why c waits, in the order of their definition (R17).
func (m *Model) waitReasons(c *claim) []lockkeeper.WaitReason {
	var all []lockkeeper.WaitReason
	for _, x := range []struct {
		reason  lockkeeper.WaitReason
		applies bool
	}{
		{lockkeeper.HeldBy, m.heldByOther(c)},
		{lockkeeper.Behind, m.behind(c)},
		{lockkeeper.OwnLimit, m.overOwnLimit(c)},
		{lockkeeper.QuietPeriod, !m.blocked(c) && !m.frozen(c) && !m.resuming(c) && m.mustBeQuiet(c)},
		{lockkeeper.AskedToYield, slices.ContainsFunc(m.asks, func(a ask) bool { return a.thief == c })},
		{lockkeeper.Frozen, m.frozen(c)},
		{lockkeeper.Resuming, m.resuming(c)},
	} {
		if x.applies {
			all = append(all, x.reason)
		}
	}
	return all
}

func (m *Model) heldByOther(c *claim) bool {
	return slices.ContainsFunc(m.claims, func(h *claim) bool { return h != c && incompatible(h.held, c.wish) })
}

func (m *Model) behind(c *claim) bool {
	for _, w := range m.waitingAhead(c) {
		if incompatible(w.wish, c.wish) {
			return true
		}
	}
	for _, t := range permitsOf(c.wish) {
		held := m.heldUnits(t.Path, c) + t.Units
		if held <= t.Limit && held+m.aheadUnits(t, c) > t.Limit {
			return true
		}
	}
	return false
}

func (m *Model) overOwnLimit(c *claim) bool {
	for _, t := range permitsOf(c.wish) {
		if m.heldUnits(t.Path, c)+t.Units > t.Limit {
			return true
		}
	}
	return false
}
