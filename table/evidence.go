package table

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// obstacles calls f with the other claims for which c waits, and the nodes where it does, until f returns
// false: first with holders, then with claims ahead in the queue.
func (c *claim) obstacles(f func(*claim, *node, lockkeeper.WaitReason) bool) {
	for p := range c.pending() {
		against := conflicts[p.kind]
		if p.kind == kindP && !p.fits() {
			against |= kindP.set()
		}
		if !p.node.holders(against, func(h *entry) bool {
			return h.claim == c || f(h.claim, p.node, lockkeeper.HeldBy)
		}) {
			return
		}
	}
	behind := func(p *entry) bool { return f(p.claim, p.node, lockkeeper.Behind) }
	for p := range c.pending() {
		crowded := p.kind == kindP && !p.fits()
		for q := range p.queuesAhead() {
			against := conflicts[p.kind].has(q.head.kind) || crowded
			if against && !q.eachBefore(c, behind) {
				return
			}
		}
	}
}

// blockers returns the freezes and claims that block c, at most MaxBlockers.
func (t *Table) blockers(c *claim) []lockkeeper.Blocker {
	var all []lockkeeper.Blocker
	for _, f := range t.freezesAgainst(c) { // not only if c.frozen: c may be refused at once
		all = append(all, lockkeeper.Blocker{
			Ref: f.by, Why: lockkeeper.Frozen, Path: f.path, Mode: lockkeeper.ModeExclusive,
			Age: t.now - f.since, Left: left(f.until, t.now), Label: f.Label,
		})
	}
	seen := make(map[*claim]bool)
	c.obstacles(func(d *claim, at *node, why lockkeeper.WaitReason) bool {
		if !seen[d] && len(all) < lockkeeper.MaxBlockers {
			seen[d] = true
			all = append(all, t.blocker(c, d, at, why))
		}
		return len(all) < lockkeeper.MaxBlockers
	})
	return all
}

// freezesAgainst returns the freezes that forbid c, sorted by path, at most MaxBlockers.
func (t *Table) freezesAgainst(c *claim) []*freeze {
	fs := slices.Collect(t.freezes.forbidding(c))
	slices.SortFunc(fs, func(a, b *freeze) int { return strings.Compare(string(a.path), string(b.path)) })
	fs = slices.Compact(fs)
	return fs[:min(len(fs), lockkeeper.MaxBlockers)]
}

func (t *Table) blocker(c, d *claim, at *node, why lockkeeper.WaitReason) lockkeeper.Blocker {
	target := d.targetAt(at.path)
	b := lockkeeper.Blocker{
		Ref: d.ref(), Why: why, Path: target.Path, Mode: target.Mode, Units: target.Units,
		Age: t.now - d.arrived, Label: d.label.unpack(),
	}
	if why == lockkeeper.HeldBy {
		b.Age = t.now - d.granted
		for _, a := range d.asks {
			if a.by == c {
				b.Why = lockkeeper.AskedToYield
			}
		}
		end := d.earliestEnd()
		if d.want.Expected > 0 {
			end = min(end, d.granted+d.want.Expected)
		}
		if end != forever {
			b.Left = left(end, t.now)
		}
	}
	return b
}

// targetAt returns the target of c for which it has an entry at path.
func (c *claim) targetAt(path lockkeeper.Path) lockkeeper.Target {
	for _, g := range c.grants() {
		if path.Covers(g.Path) {
			return g.Target
		}
	}
	return lockkeeper.Target{Path: path}
}

// waits returns the reasons why c waits (R17).
func (t *Table) waits(c *claim) []lockkeeper.WaitReason {
	var held, behind, limit bool
	for p := range c.pending() {
		against := conflicts[p.kind]
		held = held || p.node.heldAgainst(against, c)
		behind = behind || p.node.extra != nil && p.node.extra.waitsFor(against, c)
		if p.kind == kindP && p.node.units()+p.units() > p.limit() {
			limit = true
		} else if p.kind == kindP && !p.fits() {
			behind = true
		}
	}
	quiet := !held && !behind && !limit && !c.frozen && c.session().resumed &&
		c.soft() && c.want.Quiet > 0 && c.quiet()+c.want.Quiet > t.now
	var all []lockkeeper.WaitReason
	for _, why := range [...]struct {
		holds  bool
		reason lockkeeper.WaitReason
	}{
		{held, lockkeeper.HeldBy},
		{behind, lockkeeper.Behind},
		{limit, lockkeeper.OwnLimit},
		{quiet, lockkeeper.QuietPeriod},
		{len(c.asking) > 0, lockkeeper.AskedToYield},
		{c.frozen, lockkeeper.Frozen},
		{!c.session().resumed, lockkeeper.Resuming},
	} {
		if why.holds {
			all = append(all, why.reason)
		}
	}
	return all
}

// positionOf returns c's position: 1 plus the number of claims ahead for which it waits (R17). If
// no claim can be in two of these queues, it adds c's ranks in them. The rank of a claim that has
// just arrived is cheap, however long the queue is.
func (t *Table) positionOf(c *claim) int {
	position, several := 1, c.several()
	for p := range c.pending() {
		for q := range p.queuesAhead() {
			several = several || q.several > 0
		}
	}
	if several {
		c.ahead(func(*claim) bool {
			position++
			t.counted++
			return true
		})
		return position
	}
	for p := range c.pending() {
		for q := range p.queuesAhead() {
			before, looked := q.rank(c)
			position += before
			t.counted += looked
		}
	}
	return position
}
