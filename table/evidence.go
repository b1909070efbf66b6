package table

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// obstacles calls f with the places of other claims that c waits for, until f
// returns false: those held first, then those ahead in the queue.
func (c *claim) obstacles(f func(*entry, lockkeeper.WaitReason) bool) {
	for i := range c.wanted {
		p := &c.wanted[i]
		for against := conflicts[p.kind]; against != 0; {
			for h := p.node.held[against.next()]; h != nil; h = h.next {
				if h.claim != c && !f(h, lockkeeper.HeldBy) {
					return
				}
			}
		}
		crowded := p.kind == kindP && !p.fits()
		for h := p.node.held[kindP]; h != nil && crowded; h = h.next {
			if !f(h, lockkeeper.HeldBy) {
				return
			}
		}
	}
	behind := func(p *entry) bool { return f(p, lockkeeper.Behind) }
	for i := range c.wanted {
		p := &c.wanted[i]
		crowded := p.kind == kindP && !p.fits()
		for q := range p.queuesAhead() {
			against := conflicts[p.kind].has(q.head.kind) || crowded
			if against && !q.eachBefore(c, behind) {
				return
			}
		}
	}
}

// blockers names those who stand in c's way, at most MaxBlockers.
func (t *Table) blockers(c *claim) []lockkeeper.Blocker {
	var all []lockkeeper.Blocker
	for _, f := range t.freezesAgainst(c) { // not only if c.frozen: c may be refused at once
		all = append(all, lockkeeper.Blocker{
			Ref: f.by, Why: lockkeeper.Frozen, Path: f.path, Mode: lockkeeper.ModeExclusive,
			Age: t.now - f.since, Left: left(f.until, t.now), Label: f.Label,
		})
	}
	seen := make(map[*claim]bool)
	c.obstacles(func(p *entry, why lockkeeper.WaitReason) bool {
		if d := p.claim; !seen[d] && len(all) < lockkeeper.MaxBlockers {
			seen[d] = true
			all = append(all, t.blocker(c, d, p, why))
		}
		return len(all) < lockkeeper.MaxBlockers
	})
	return all
}

// freezesAgainst returns the freezes that forbid c, sorted by path, at most MaxBlockers.
func (t *Table) freezesAgainst(c *claim) []*freeze {
	fs := slices.Collect(t.freezes.forbidding(c.want.Targets))
	slices.SortFunc(fs, func(a, b *freeze) int { return strings.Compare(string(a.path), string(b.path)) })
	fs = slices.Compact(fs)
	return fs[:min(len(fs), lockkeeper.MaxBlockers)]
}

func (t *Table) blocker(c, d *claim, p *entry, why lockkeeper.WaitReason) lockkeeper.Blocker {
	target := d.targetAt(p.node.path)
	b := lockkeeper.Blocker{
		Ref: d.ref, Why: why, Path: target.Path, Mode: target.Mode, Units: target.Units,
		Age: t.now - d.arrived, Label: d.want.Label,
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

// targetAt is the target of c for which it has a place at path.
func (c *claim) targetAt(path lockkeeper.Path) lockkeeper.Target {
	for _, g := range c.grants {
		if path.Covers(g.Path) {
			return g.Target
		}
	}
	return lockkeeper.Target{Path: path}
}

// waits are the reasons why c waits (R17).
func (t *Table) waits(c *claim) []lockkeeper.WaitReason {
	var held, behind, limit bool
	for i := range c.wanted {
		p := &c.wanted[i]
		against := conflicts[p.kind]
		held = held || p.node.heldAgainst(against, c)
		behind = behind || p.node.waiters != nil && p.node.waiters.waitsFor(against, c)
		if p.kind == kindP && p.node.units+p.units > p.limit {
			limit = true
		} else if p.kind == kindP && !p.fits() {
			behind = true
		}
	}
	quiet := !held && !behind && !limit && !c.frozen && c.session.resumed &&
		c.soft() && c.want.Quiet > 0 && c.quiet+c.want.Quiet > t.now
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
		{!c.session.resumed, lockkeeper.Resuming},
	} {
		if why.holds {
			all = append(all, why.reason)
		}
	}
	return all
}

// positionOf returns c's position in the queue: 1 plus the claims ahead that it meets (R17). If c can't meet a
// claim twice, it adds c's rank in each queue. The rank of a claim that has just arrived costs
// little, however long the queue is.
func (t *Table) positionOf(c *claim) int {
	place, several := 1, len(c.want.Targets) > 1
	for i := range c.wanted {
		for q := range c.wanted[i].queuesAhead() {
			several = several || q.several > 0
		}
	}
	if several {
		c.ahead(func(*claim) bool {
			place++
			t.counted++
			return true
		})
		return place
	}
	for i := range c.wanted {
		for q := range c.wanted[i].queuesAhead() {
			before, looked := q.rank(c)
			place += before
			t.counted += looked
		}
	}
	return place
}
