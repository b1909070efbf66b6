package table

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// outlasted reports whether c's wait is certain to end without a grant (R8): a
// freeze, or holds that are announced to last, go on until its bound or longer.
func (t *Table) outlasted(c *claim) bool {
	if c.ended || len(c.wanted) == 0 || c.bound == forever {
		return false
	}
	if c.frozen {
		if f := t.forbidden(c); f != nil && f.until >= c.bound {
			return true
		}
	}
	if t.lasting == 0 {
		return false
	}
	for i := range c.wanted {
		p := &c.wanted[i]
		for against := conflicts[p.kind]; against != 0; {
			for h := p.node.held[against.next()]; h != nil; h = h.next {
				if c.outlastedBy(h.claim) {
					return true
				}
			}
		}
		units := p.units
		for h := p.node.held[kindP]; h != nil && p.kind == kindP; h = h.next {
			if c.outlastedBy(h.claim) {
				units += h.units
			}
		}
		if units > p.limit {
			return true
		}
	}
	return false
}

// outlastedBy reports whether h is sure to be held when c gives up.
func (c *claim) outlastedBy(h *claim) bool {
	return h != c && h.announcedEnd() >= c.bound && !(c.steals() && h.want.Priority < c.want.Priority)
}

// doubtAround has the waits looked at again that a change of c may have outlasted.
func (t *Table) doubtAround(c *claim) {
	if c.want.Expected == 0 {
		return
	}
	for i := range c.held {
		h := &c.held[i]
		doubt := func(p *place) bool {
			t.work++
			t.doubtful = append(t.doubtful, p.claim)
			return true
		}
		l, ks := h.node.line, against(h.kind)
		if l == nil {
			continue
		}
		l.eachOf(ks, doubt)
		if l.apart != nil {
			eachOf(&l.apart.soft, ks, doubt)
			eachOf(&l.apart.frozen, ks, doubt)
		}
	}
}

// refuseOutlasted ends the waits that have become outlasted; it reports whether
// there were any.
func (t *Table) refuseOutlasted() bool {
	if len(t.doubtful) == 0 {
		return false
	}
	doubtful := t.doubtful
	t.doubtful = nil
	sortClaims(doubtful)
	any := false
	for _, c := range slices.Compact(doubtful) {
		if t.outlasted(c) {
			t.giveUp(c, lockkeeper.TimedOut, "the wait was certain to be outlasted")
			any = true
		}
	}
	return any
}
