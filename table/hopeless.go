package table

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// hopeless reports whether c's wait is certain to end without a grant (R8): a freeze or announced
// holds block it until its bound or longer.
func (t *Table) hopeless(c *claim) bool {
	if c.ended() || !c.waits || c.bound() == forever {
		return false
	}
	if c.frozen {
		if f := t.forbidden(c); f != nil && f.until >= c.bound() {
			return true
		}
	}
	if t.announced == 0 {
		return false
	}
	for p := range c.pending() {
		if !p.node.holders(conflicts[p.kind], func(h *entry) bool { return !c.heldBeyond(h.claim) }) {
			return true
		}
		if p.kind != kindP {
			continue
		}
		units := p.units()
		p.node.holders(kindP.set(), func(h *entry) bool {
			if c.heldBeyond(h.claim) {
				units += h.units()
			}
			return true
		})
		if units > p.limit() {
			return true
		}
	}
	return false
}

// heldBeyond reports whether h is certain to be held when c gives up.
func (c *claim) heldBeyond(h *claim) bool {
	return h != c && h.announcedEnd() >= c.bound() && !(c.steals() && h.want.Priority < c.want.Priority)
}

// recheckAround marks the waits that a change of the hold c may have made hopeless.
func (t *Table) recheckAround(c *claim) {
	if c.want.Expected == 0 {
		return
	}
	recheck := func(p *entry) bool {
		t.work++
		t.maybeHopeless = append(t.maybeHopeless, p.claim)
		return true
	}
	held := c.held()
	for i := range held {
		for n, k := range held[i].places() {
			l, ks := n.extra, against(k)
			if l == nil {
				continue
			}
			l.eachOf(ks, recheck)
			if l.rare != nil {
				eachOf(&l.rare.soft, ks, recheck)
				eachOf(&l.rare.frozen, ks, recheck)
			}
		}
	}
}

// refuseHopeless ends the marked waits that are hopeless. It reports whether it ended any.
func (t *Table) refuseHopeless() bool {
	if len(t.maybeHopeless) == 0 {
		return false
	}
	marked := t.maybeHopeless
	t.maybeHopeless = nil
	sortClaims(marked)
	any := false
	for _, c := range slices.Compact(marked) {
		if t.hopeless(c) {
			t.giveUp(c, lockkeeper.TimedOut, "no grant was possible within the wait: a hold or a freeze lasts longer")
			any = true
		}
	}
	return any
}
