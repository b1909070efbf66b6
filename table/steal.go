package table

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// changeAbove is changeAt for the node of p, which is held, and for the nodes above.
func (t *Table) changeAbove(p *entry) {
	if len(t.thieves) == 0 {
		return
	}
	for n, k := range p.places() {
		t.changeAt(n, k)
	}
}

// changeAt records that an entry of kind k came to n or left it, or that its claim has a new
// priority. That may change the ask sets of thieves at n whose kinds conflict with k.
func (t *Table) changeAt(n *node, k kind) {
	if n.extra == nil || n.extra.rare == nil || !n.extra.rare.hasThieves(k) {
		return
	}
	if n.changed == 0 {
		t.changedNodes = append(t.changedNodes, n)
	}
	n.changed |= k.set()
}

// hasThieves reports whether there are thieves whose ask sets depend on entries of kind k.
func (a *rareWaiters) hasThieves(k kind) bool {
	for ks := against(k); ks != 0; {
		if len(a.thieves[ks.next()]) > 0 {
			return true
		}
	}
	return false
}

// markThievesInside marks the thieves inside of ref, directly or through other claims, for an
// update of their asks: ref came or ended, and no thief may rob a hold that it is inside of. It
// skips claims that it has visited since the last update of asks.
func (t *Table) markThievesInside(ref lockkeeper.Ref) {
	if len(t.nestedIn[ref]) == 0 || len(t.thieves) == 0 {
		return
	}
	if t.insidePass == 0 {
		t.passes++
		t.insidePass = t.passes
	}
	for refs := []lockkeeper.Ref{ref}; len(refs) > 0; {
		last := len(refs) - 1
		ref, refs = refs[last], refs[:last]
		for _, c := range t.nestedIn[ref] {
			if c.pass == t.insidePass {
				continue
			}
			c.pass = t.insidePass
			if c.isThief {
				t.staleThieves = append(t.staleThieves, c)
			}
			refs = append(refs, c.ref())
		}
	}
}

// updateAllAsks updates the asks of thieves whose ask sets may have changed (R10). Asks don't
// depend on each other, so the order of the thieves does not matter. Events for holders whose asks
// changed come in the order of their fences.
func (t *Table) updateAllAsks() {
	t.insidePass = 0
	if len(t.staleThieves) == 0 && len(t.changedNodes) == 0 {
		return
	}
	var changed []*claim
	for _, c := range t.affectedThieves() {
		changed = t.updateAsks(c, changed)
		if len(c.asking) > 0 {
			t.takers = append(t.takers, c)
		}
	}
	slices.SortFunc(changed, func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
	for _, v := range slices.Compact(changed) {
		if !v.ended() {
			t.recordChange(v, AskChanged, lockkeeper.NoReason)
		}
	}
}

// affectedThieves returns the thieves whose ask sets may have changed, each once, and clears the
// marks.
func (t *Table) affectedThieves() []*claim {
	t.passes++
	all := t.staleThieves[:0]
	add := func(c *claim) {
		if c.isThief && c.pass != t.passes {
			c.pass = t.passes
			all = append(all, c)
		}
	}
	for _, c := range t.staleThieves {
		add(c)
	}
	for i, n := range t.changedNodes {
		for k, thieves := range n.extra.rare.thieves {
			if against(kind(k))&n.changed == 0 {
				continue
			}
			for p := range thieves { // order does not matter: each asks by itself
				t.work++
				add(p.claim)
			}
		}
		n.changed = 0
		t.changedNodes[i] = nil
	}
	t.staleThieves, t.changedNodes = nil, t.changedNodes[:0]
	return all
}

// updateAsks updates c's asks, and appends the holders whose asks changed to changed.
func (t *Table) updateAsks(c *claim, changed []*claim) []*claim {
	set := t.askSet(c)
	t.passes++
	for _, v := range set {
		v.pass = t.passes
	}
	for v := range c.asking { // order does not matter: changed is sorted
		if v.pass != t.passes {
			t.withdraw(c, v)
			changed = append(changed, v)
		}
	}
	for _, v := range set {
		if _, asked := c.asking[v]; !asked {
			t.ask(c, v)
			changed = append(changed, v)
		}
	}
	t.reschedule(c)
	return changed
}

// askSet returns the ask set of c (R10): exactly the holders that must release so that c can be
// granted.
func (t *Table) askSet(c *claim) []*claim {
	if c.frozen || !c.session().resumed || c.want.Wait == 0 {
		return nil
	}
	t.passes++
	s := askSearch{thief: c, outer: t.passes, table: t}
	for d := t.outer(c); d != nil && d.pass != s.outer; d = t.outer(d) {
		d.pass = s.outer
	}
	t.passes++
	s.chosen = t.passes
	for p := range c.pending() {
		if !s.askAgainst(p) {
			return nil
		}
	}
	for _, p := range c.permitsByPath() {
		if !s.askPermits(p) {
			return nil
		}
	}
	return s.set
}

// askSearch is the search for the ask set of one thief. It sets claim.pass to outer if the thief is
// inside of that claim, and to chosen if the claim is in the set.
type askSearch struct {
	table         *Table
	thief         *claim
	set           []*claim
	outer, chosen uint32
}

func (s *askSearch) add(h *claim) {
	h.pass = s.chosen
	s.set = append(s.set, h)
}

// mayRob reports whether the thief may ask h to yield: h must have a lower priority, and the thief
// must not be inside of h.
func (s *askSearch) mayRob(h *claim) bool {
	return h.want.Priority < s.thief.want.Priority && h.pass != s.outer
}

// askAgainst adds the holders that are incompatible with p by its kind. It returns false if the
// thief may not rob one of them, or if an incompatible claim is ahead in the queue.
func (s *askSearch) askAgainst(p *entry) bool {
	against := conflicts[p.kind]
	if s.table.work++; p.node.extra != nil && p.node.extra.waitsFor(against, s.thief) {
		return false
	}
	return p.node.holders(against, func(h *entry) bool {
		switch s.table.work++; {
		case h.claim == s.thief || h.claim.pass == s.chosen:
		case !s.mayRob(h.claim):
			return false
		default:
			s.add(h.claim)
		}
		return true
	})
}

// permitsByPath returns the entries with which c wants permits, sorted by path, so that the order
// of the request's targets does not matter.
func (c *claim) permitsByPath() []*entry {
	var permits []*entry
	wanted := c.wanted()
	for i := range wanted {
		if wanted[i].kind == kindP {
			permits = append(permits, &wanted[i])
		}
	}
	slices.SortFunc(permits, func(a, b *entry) int { return strings.Compare(string(a.node.path), string(b.node.path)) })
	return permits
}

// askPermits adds the holders of permits at p's node that must yield for p to fit. It returns
// false if p can't fit.
func (s *askSearch) askPermits(p *entry) bool {
	units := p.node.units()
	var holders []*entry
	p.node.holders(kindP.set(), func(h *entry) bool {
		s.table.work++
		if h.claim.pass == s.chosen {
			units -= h.units()
		} else if s.mayRob(h.claim) {
			holders = append(holders, h)
		}
		return true
	})
	missing := units + p.units() - p.limit()
	if free := max(0, -missing); p.node.extra != nil && p.node.extra.unitsAhead(p, free) > free {
		return false
	}
	if missing <= 0 {
		return true
	}
	slices.SortFunc(holders, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.claim.want.Priority, b.claim.want.Priority), cmp.Compare(b.claim.fence, a.claim.fence))
	})
	chosen, steps := fewestUnits(holders, missing)
	s.table.work += steps
	for _, h := range chosen {
		s.add(h.claim)
	}
	return chosen != nil
}

// ask makes c ask v to yield.
func (t *Table) ask(c, v *claim) {
	end := forever
	if c.want.Steal == lockkeeper.Take {
		end = t.now + stealDelay(c.want, v.session().ttl)
	}
	c.askFor(v, end)
	i, _ := slices.BinarySearchFunc(v.asks, c, func(a ask, c *claim) int { return a.by.compare(c) })
	v.own().asks = slices.Insert(v.asks, i, ask{by: c, end: end})
	t.mark(c)
}

// stealDelay returns the time from an ask of w to its end, for a holder whose session has this TTL.
func stealDelay(w *terms, ttl time.Duration) time.Duration {
	delay := w.After
	if w.AfterTTL != 0 {
		of, part := cmp.Or(ttl, lockkeeper.DefaultTTL), time.Duration(w.AfterTTL)
		delay = of/1000*part + of%1000*part/1000 // of*part could overflow
	}
	if ttl > 0 {
		delay = min(delay, ttl)
	}
	return delay
}

// askFor records in c that it asks v. The caller keeps v.asks consistent.
func (c *claim) askFor(v *claim, end time.Duration) {
	if c.asking == nil {
		c.own().asking = make(map[*claim]time.Duration)
	}
	c.asking[v] = end
}

func (c *claim) sortAsks() {
	slices.SortFunc(c.asks, func(a, b ask) int { return a.by.compare(b.by) })
}

// victims returns the holders that c asks, sorted by fence.
func (c *claim) victims() []*claim {
	return slices.SortedFunc(maps.Keys(c.asking), func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
}

// withdrawAll removes all asks of v, which ends.
func (t *Table) withdrawAll(v *claim) {
	for _, a := range v.asks {
		t.work++
		delete(a.by.asking, v)
		t.mark(a.by)
	}
	if len(v.asks) > 0 {
		v.asks = nil
	}
}

// withdraw ends c's ask of v.
func (t *Table) withdraw(c, v *claim) {
	t.work += len(v.asks)
	delete(c.asking, v)
	v.own().asks = slices.DeleteFunc(v.asks, func(a ask) bool { return a.by == c })
	t.mark(c)
	t.mark(v)
}

// startStealing makes c a thief, unless it is one, and marks its asks for an update.
func (t *Table) startStealing(c *claim) {
	if !c.isThief {
		c.own().isThief = true
		t.thieves[c] = struct{}{}
	}
	t.staleThieves = append(t.staleThieves, c)
}

// stopStealing withdraws c's asks and removes c from the thieves, because it no longer waits.
func (t *Table) stopStealing(c *claim) {
	if !c.isThief {
		return
	}
	t.forgetThief(c)
	for _, v := range c.victims() {
		t.withdraw(c, v)
		if !v.ended() {
			t.recordChange(v, AskChanged, lockkeeper.NoReason)
		}
	}
}

func (t *Table) forgetThief(c *claim) {
	c.own().isThief = false
	delete(t.thieves, c)
}

// takeAt returns the instant at which c may take the holds that it asks for; forever if it never
// may, or if that instant has come already.
func (t *Table) takeAt(c *claim) time.Duration {
	at := time.Duration(0)
	for _, end := range c.asking { // order does not matter: the latest counts
		at = max(at, end)
	}
	if at <= t.now {
		return forever
	}
	return at
}

// take ends the holders asked by one thief as stolen, and grants the thief, in this one step. The
// thief is the first in the queue of t.takers whose asks have all ended. take returns false if
// there is none.
func (t *Table) take() bool {
	var taker *claim
	may := t.takers[:0]
	for _, c := range t.takers {
		if !c.isThief || len(c.asking) == 0 || !t.allEnded(c) {
			continue
		}
		if may = append(may, c); taker == nil || c.before(taker) {
			taker = c
		}
	}
	clear(t.takers[len(may):])
	t.takers = may
	if taker == nil {
		return false
	}
	for _, v := range taker.victims() {
		t.endForced(v, lockkeeper.Stolen, taker.label.unpack())
	}
	t.grant(taker) // in the same step, so that no other claim is granted before it
	return true
}

// allEnded reports whether the ends of all asks by c have passed.
func (t *Table) allEnded(c *claim) bool {
	for _, end := range c.asking { // order does not matter: all of them count
		if end > t.now {
			return false
		}
	}
	return true
}
