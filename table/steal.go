package table

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// askAnew brings the asks of all thieves up to date (R10). Asks don't depend on
// each other, so the order of the thieves does not matter; holders whose asks
// changed are told in the order of their fences.
func (t *Table) askAnew() {
	var told []*claim
	for _, c := range t.thieves {
		set := t.askSet(c)
		for _, v := range slices.Clone(c.asking) {
			if !slices.Contains(set, v) {
				t.withdraw(c, v)
				told = append(told, v)
			}
		}
		for _, v := range set {
			if !slices.Contains(c.asking, v) {
				t.ask(c, v)
				told = append(told, v)
			}
		}
		t.reschedule(c)
	}
	slices.SortFunc(told, func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
	for _, v := range slices.Compact(told) {
		if !v.ended {
			t.note(v, AskChanged, lockkeeper.NoReason)
		}
	}
}

// askSet is whom c asks to yield: exactly those who must release so that it can
// be granted, or nobody if that would be in vain (R10).
func (t *Table) askSet(c *claim) []*claim {
	if c.frozen || !c.session.resumed || c.want.Wait == 0 {
		return nil
	}
	var set []*claim
	for i := range c.wanted {
		p := &c.wanted[i]
		against := conflicts[p.kind]
		if p.node.line != nil && p.node.line.waitsFor(against, c) {
			return nil
		}
		for against != 0 {
			for h := p.node.held[against.next()]; h != nil; h = h.next {
				switch {
				case h.claim == c:
				case !t.mayRob(c, h.claim):
					return nil
				case !slices.Contains(set, h.claim):
					set = append(set, h.claim)
				}
			}
		}
	}
	for _, p := range c.permitsByPath() {
		var enough bool
		if set, enough = t.askPermits(p, set); !enough {
			return nil
		}
	}
	return set
}

// permitsByPath are the places where c wants permits, in the order of their
// paths, so that it does not matter in which order they were named.
func (c *claim) permitsByPath() []*place {
	var permits []*place
	for i := range c.wanted {
		if c.wanted[i].kind == kindP {
			permits = append(permits, &c.wanted[i])
		}
	}
	slices.SortFunc(permits, func(a, b *place) int { return strings.Compare(string(a.node.path), string(b.node.path)) })
	return permits
}

// mayRob reports whether c may ask h to yield: nobody robs an equal, or a hold
// that it is inside of.
func (t *Table) mayRob(c, h *claim) bool {
	return h.want.Priority < c.want.Priority && !t.inside(c, h)
}

// askPermits adds to set the holders of permits at p's node that must yield for
// p to fit; false if that can't be had.
func (t *Table) askPermits(p *place, set []*claim) ([]*claim, bool) {
	c := p.claim
	units := p.node.units
	var holders []*place
	for h := p.node.held[kindP]; h != nil; h = h.next {
		if slices.Contains(set, h.claim) {
			units -= h.units
		} else if t.mayRob(c, h.claim) {
			holders = append(holders, h)
		}
	}
	missing := units + p.units - p.limit
	if p.node.line != nil {
		if ahead := p.node.line.unitsAhead(p, p.limit); ahead > 0 && missing+ahead > 0 {
			return nil, false
		}
	}
	if missing <= 0 {
		return set, true
	}
	slices.SortFunc(holders, func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.claim.want.Priority, b.claim.want.Priority), cmp.Compare(b.claim.fence, a.claim.fence))
	})
	chosen := fewest(holders, missing)
	for _, h := range chosen {
		set = append(set, h.claim)
	}
	return set, chosen != nil
}

// mostSums bounds the work of fewest.
const mostSums = 1 << 16

// fewest chooses among holders a set with at least missing units and as few as
// possible; of several such sets the one that prefers holders in the order
// given. Nil if all together don't have enough. sums[i] are the sums that
// holders from i on can reach; one that is not below missing plus the largest
// single number of units is never the smallest. Where holders have so many different
// numbers of units that there are more sums than mostSums, it takes them in
// order until they suffice.
func fewest(holders []*place, missing int) []*place {
	most, all := 0, 0
	for _, h := range holders {
		most = max(most, h.units)
		all += h.units
	}
	if all < missing {
		return nil
	}
	sums := make([][]int, len(holders)+1)
	sums[len(holders)] = []int{0}
	count := 0
	for i := len(holders) - 1; i >= 0; i-- {
		sums[i] = withUnits(sums[i+1], holders[i].units, missing+most)
		if count += len(sums[i]); count > mostSums {
			return inOrder(holders, missing)
		}
	}
	i, _ := slices.BinarySearch(sums[0], missing)
	sum := sums[0][i]
	var chosen []*place
	for i, h := range holders {
		if _, reached := slices.BinarySearch(sums[i+1], sum-h.units); reached {
			chosen = append(chosen, h)
			sum -= h.units
		}
	}
	return chosen
}

// withUnits are the given sums, and each of them plus units, in order, those not
// below bound left out.
func withUnits(sums []int, units, bound int) []int {
	both := make([]int, 0, 2*len(sums))
	both = append(both, sums...)
	for _, s := range sums {
		if s+units < bound {
			both = append(both, s+units)
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// inOrder chooses holders in the order given until they have enough units.
func inOrder(holders []*place, missing int) []*place {
	for i, h := range holders {
		if missing -= h.units; missing <= 0 {
			return holders[:i+1]
		}
	}
	return nil
}

// ask makes c ask v to yield.
func (t *Table) ask(c, v *claim) {
	end := forever
	if c.want.Steal == lockkeeper.Take {
		end = c.want.After
		if ttl := v.session.ttl; ttl > 0 {
			end = min(end, ttl)
		}
		end += t.now
	}
	c.asking = append(c.asking, v)
	v.asks = append(v.asks, ask{by: c, end: end})
	v.sortAsks()
	t.mark(c)
}

func (c *claim) sortAsks() {
	slices.SortFunc(c.asks, func(a, b ask) int { return a.by.compare(b.by) })
}

// withdraw ends c's ask of v, if there is one.
func (t *Table) withdraw(c, v *claim) {
	c.asking = remove(c.asking, v)
	v.asks = slices.DeleteFunc(v.asks, func(a ask) bool { return a.by == c })
	t.mark(c)
	t.mark(v)
}

// stopStealing ends all that c does as a thief, because it waits no longer.
func (t *Table) stopStealing(c *claim) {
	if !c.isThief {
		return
	}
	c.isThief = false
	t.thieves = remove(t.thieves, c)
	for len(c.asking) > 0 {
		v := c.asking[0]
		t.withdraw(c, v)
		if !v.ended {
			t.note(v, AskChanged, lockkeeper.NoReason)
		}
	}
}

// takeAt is when c may take what it asks for; forever if never, or if that has
// come already.
func (t *Table) takeAt(c *claim) time.Duration {
	at := time.Duration(0)
	for _, v := range c.asking {
		for _, a := range v.asks {
			if a.by == c {
				at = max(at, a.end)
			}
		}
	}
	if at <= t.now {
		return forever
	}
	return at
}

// take lets the first thief in line whose bounds have passed have its way:
// those whom it asked end as stolen, and it is granted, in this one step.
func (t *Table) take() bool {
	var taker *claim
	for _, c := range t.thieves {
		if len(c.asking) > 0 && t.allEnded(c) && (taker == nil || c.before(taker)) {
			taker = c
		}
	}
	if taker == nil {
		return false
	}
	victims := slices.Clone(taker.asking)
	slices.SortFunc(victims, func(a, b *claim) int { return cmp.Compare(a.fence, b.fence) })
	for _, v := range victims {
		t.endForced(v, lockkeeper.Stolen)
	}
	t.grant(taker) // in the same step, so that nobody else can go before it
	return true
}

// allEnded reports whether the bounds of all that c asked have passed.
func (t *Table) allEnded(c *claim) bool {
	for _, v := range c.asking {
		for _, a := range v.asks {
			if a.by == c && a.end > t.now {
				return false
			}
		}
	}
	return true
}
