package table

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Check verifies every invariant of the table and returns an error for the first that is violated.
// It costs far more than a step; tests call it after each one.
func (t *Table) Check() error {
	for _, check := range [...]func() error{
		t.checkClaims, t.checkLapses, t.checkTree, t.checkEntries, t.checkExclusion, t.checkFences, t.checkNesting,
		t.checkEndings, t.checkLists, t.checkAsks, t.checkHoldTimes, t.checkSchedule, t.checkSettled,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if noWait != (wait{}) {
		return errors.New("the wait that claims share was changed")
	}
	if shared := plain; !shared.equalsPlain() || plainEnd.text != "" || plainEnd.several != nil ||
		plainEnd.unackedUntil != 0 || plainEnd.blockers != nil || plainEnd.position != 0 || plainEnd.eta != 0 {
		return errors.New("the cold part that claims or ends share was changed")
	}
	return nil
}

func (c *cold) equalsPlain() bool {
	return c.quietFrom == unset && c.changed == unset && !c.overdue && !c.isThief && !c.unsure && c.stated == forever &&
		c.statedIn == 0 && c.unackedEnd == forever && c.refused == 0 && c.undone == 0 && c.text == "" &&
		c.permits == nil && c.targets == nil && c.converts == nil && c.asking == nil && c.asks == nil &&
		c.operator == nil && c.lapse == nil && c.nestedIndex == 0
}

// everyClaim lists all live claims by session and id.
func (t *Table) everyClaim() []*claim {
	var all []*claim
	for _, s := range t.sessionsByID() {
		all = append(all, s.byID()...)
	}
	return all
}

// checkClaims verifies that each claim waits, or is held, or both as a conversion, and that its
// entries match this state.
func (t *Table) checkClaims() error {
	for _, c := range t.everyClaim() {
		s := c.session()
		switch {
		case s.claim(c.id) != c || t.sessions[s.id] != s:
			return fmt.Errorf("claim %s belongs to another session", c.ref())
		case !c.holds && !c.waits:
			return fmt.Errorf("claim %s neither waits nor is held", c.ref())
		case (c.waits) != (c.queued || c.frozen) || c.queued && c.frozen:
			return fmt.Errorf("claim %s: wants %d entries, queued %t, frozen %t", c.ref(), len(c.wanted()), c.queued, c.frozen)
		case c.frozen != (c.waits && t.forbidden(c) != nil):
			return fmt.Errorf("claim %s: frozen is %t, against the freezes", c.ref(), c.frozen)
		case (c.holds) != (c.fence > 0):
			return fmt.Errorf("claim %s: fence %d but %d entries held", c.ref(), c.fence, len(c.held()))
		case !c.waits && c.bound() != forever:
			return fmt.Errorf("claim %s waits for nothing until %s", c.ref(), c.bound())
		}
		if w := c.request(); w.Check() != nil {
			return fmt.Errorf("claim %s: %w", c.ref(), w.Check())
		}
	}
	return nil
}

// checkLapses verifies that a lapsed hold waits for nothing, and is not held beyond the stated end.
func (t *Table) checkLapses() error {
	for _, c := range t.everyClaim() {
		switch {
		case c.lapse == nil:
		case !c.holds || c.waits:
			return fmt.Errorf("claim %s lapsed, and waits", c.ref())
		case c.lapse.end <= t.now || c.dueAt() > c.lapse.end:
			return fmt.Errorf("claim %s lapsed until %s, and is due at %s; it is %s",
				c.ref(), c.lapse.end, c.dueAt(), t.now)
		}
	}
	return nil
}

// checkExclusion verifies that no two incompatible claims are held (P2 of the safety page), and
// that no two claims hold one slot. Only the highest limit bounds the sum of units, because the
// table grants each holder under the holder's own limit.
func (t *Table) checkExclusion() error {
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		highest, slotted := 0, make(map[int]lockkeeper.Ref)
		for p := n.held; p != nil; p = p.next {
			if n.heldAgainst(conflicts[p.kind], p.claim) {
				return fmt.Errorf("%s: claim %s holds %s against an incompatible hold", path, p.claim.ref(), p.kind)
			}
			highest = max(highest, p.limit())
		}
		if n.units() > highest {
			return fmt.Errorf("%s: %d units are held, more than the highest limit, %d", path, n.units(), highest)
		}
		for p := n.held; p != nil; p = p.next {
			for _, g := range p.claim.grants() {
				if g.Path != path || p.kind != kindP {
					continue
				}
				if g.InUse > g.Limit || g.InUse < g.Units || (g.Slot > 0) != (g.Units == 1) || g.Slot > g.Limit {
					return fmt.Errorf("%s: claim %s was granted %+v", path, p.claim.ref(), g)
				}
				if other, twice := slotted[g.Slot]; twice && g.Slot > 0 {
					return fmt.Errorf("%s: slot %d is held by %s and %s", path, g.Slot, other, p.claim.ref())
				}
				slotted[g.Slot] = p.claim.ref()
			}
		}
	}
	return nil
}

// checkFences verifies that no two claims have one fence or ticket, and that none is above its
// counter.
func (t *Table) checkFences() error {
	fences, tickets := make(map[uint64]bool), make(map[uint64]bool)
	for _, c := range t.everyClaim() {
		if fences[c.fence] && c.fence > 0 || c.fence > t.fences {
			return fmt.Errorf("claim %s: fence %d was given twice or is above %d", c.ref(), c.fence, t.fences)
		}
		if tickets[c.ticket] || c.ticket > t.tickets || c.change > t.changes {
			return fmt.Errorf("claim %s: ticket %d was drawn twice, or a counter went back", c.ref(), c.ticket)
		}
		fences[c.fence], tickets[c.ticket] = true, true
	}
	for id, s := range t.sessions { // order does not matter: any failure is one
		if s.id != id || s.epoch > t.epochs || s.epoch == 0 {
			return fmt.Errorf("session %s: epoch %d of %d", id, s.epoch, t.epochs)
		}
	}
	return nil
}

// checkNesting verifies that nestedIn has exactly the claims made inside another claim's hold, and
// that blockingWaits counts the queued claims whose wait keeps a hold from being released.
func (t *Table) checkNesting() error {
	blocking, nested := 0, 0
	for _, c := range t.everyClaim() {
		if c.nested() {
			nested++
			if named := t.nestedIn[c.want.Inside]; c.nestedIndex >= len(named) || named[c.nestedIndex] != c {
				return fmt.Errorf("claim %s is not among those inside %s", c.ref(), c.want.Inside)
			}
		}
		if c.queued && c.blocksHeld() {
			blocking++
		}
	}
	if blocking != t.blockingWaits {
		return fmt.Errorf("blockingWaits is %d, counted %d", t.blockingWaits, blocking)
	}
	for ref, named := range t.nestedIn { // order does not matter: any failure is one
		if nested -= len(named); len(named) == 0 || nested < 0 {
			return fmt.Errorf("%d claims are listed inside %s, more than there are", len(named), ref)
		}
	}
	return nil
}

// checkLists verifies the lists and counters of thieves, frozen claims, soft claims and announced
// holds, and that no work of a step is left.
func (t *Table) checkLists() error {
	announced, softs, mixed, thieves := 0, 0, 0, 0
	for _, n := range t.nodesWithWaiters() {
		if len(n.extra.limits()) > 1 {
			mixed++
		}
	}
	for _, c := range t.everyClaim() {
		if c.queued && c.soft() {
			softs++
		}
		if thief := c.waits && c.steals(); c.isThief != thief {
			return fmt.Errorf("claim %s: thief is %t", c.ref(), c.isThief)
		} else if thief {
			thieves++
		}
		if _, listed := t.frozen[c]; c.frozen != listed {
			return fmt.Errorf("claim %s: frozen is %t, against the list", c.ref(), c.frozen)
		}
		if c.holds && c.want.Expected > 0 {
			announced++
		}
	}
	if softs != t.softWaiters || mixed != t.mixedQueues {
		return fmt.Errorf("soft claims and mixed queues are %d and %d, counted %d and %d",
			t.softWaiters, t.mixedQueues, softs, mixed)
	}
	if thieves != len(t.thieves) || len(t.staleThieves) > 0 || len(t.changedNodes) > 0 || len(t.takers) > 0 {
		return fmt.Errorf("%d thieves are listed, %d exist; or a step left work for them",
			len(t.thieves), thieves)
	}
	if announced != t.announced || len(t.touched) > 0 || len(t.arrivals) > 0 || len(t.maybeHopeless) > 0 {
		return fmt.Errorf("announced is %d, counted %d; or a step left work", t.announced, announced)
	}
	for i, f := range t.freezes.all {
		if i > 0 && t.freezes.all[i-1].path >= f.path {
			return fmt.Errorf("freezes are not in order at %s", f.path)
		}
	}
	return nil
}

// checkHoldTimes verifies that the ring and the heap have the hold times of the map, in order, and
// not too many.
func (t *Table) checkHoldTimes() error {
	n, ps := len(t.holdTimes.latest), t.holdTimes
	for p := ps.ring.newer; p != &ps.ring; p = p.newer {
		if n++; ps.of[p.path] != p || p.newer.older != p || p.newer != &ps.ring && !p.before(p.newer) {
			return fmt.Errorf("the hold time of %s is not at its position", p.path)
		}
	}
	for i, p := range ps.latest {
		if ps.of[p.path] != p || p.index != i || p.newer != nil || p.path < ps.latest[max(0, (i-1)/2)].path ||
			p.at != ps.latest[0].at || ps.ring.older != &ps.ring && ps.ring.older.at >= p.at {
			return fmt.Errorf("the hold time of %s is not at its index", p.path)
		}
	}
	for _, p := range ps.of { // order does not matter: any failure is one
		if p.estimate < 0 || p.at > t.now || !p.path.Valid() {
			return fmt.Errorf("the hold time of %s is %s since %s", p.path, p.estimate, p.at)
		}
	}
	if n != len(ps.of) || n > MaxHoldTimes {
		return fmt.Errorf("%d hold times are listed, %d are known, the limit is %d", n, len(ps.of), MaxHoldTimes)
	}
	return nil
}

// checkAsks verifies that each thief asks its ask set (R10), and that thief and holder agree on
// each ask.
func (t *Table) checkAsks() error {
	for _, c := range t.everyClaim() {
		var set []*claim
		if c.isThief {
			set = t.askSet(c)
		}
		if len(set) != len(c.asking) {
			return fmt.Errorf("claim %s asks %d holders, R10 says %d", c.ref(), len(c.asking), len(set))
		}
		for _, v := range set {
			if _, asked := c.asking[v]; !asked || !slices.ContainsFunc(v.asks, func(a ask) bool { return a.by == c }) {
				return fmt.Errorf("claim %s does not ask %s", c.ref(), v.ref())
			}
		}
		for i, a := range c.asks {
			if end, asked := a.by.asking[c]; !asked || end != a.end || i > 0 && !c.asks[i-1].by.before(a.by) {
				return fmt.Errorf("claim %s is asked by %s, which does not know, or out of order", c.ref(), a.by.ref())
			}
		}
	}
	return nil
}

// checkSchedule verifies that every timer is in the future and at its index in the heap.
func (t *Table) checkSchedule() error {
	for i, tm := range t.schedule {
		if tm.index != i+1 || tm.at <= t.now || tm.at < t.schedule[max(0, (i-1)/2)].at {
			return fmt.Errorf("timer %d at %s has index %d, now is %s", i, tm.at, tm.index, t.now)
		}
	}
	resuming := 0
	for _, s := range t.sessionsByID() {
		if !s.resumed && s.ttl > 0 {
			resuming++
		}
		if s.due.at != s.deadline || (s.deadline == forever) != (s.ttl == 0) {
			return fmt.Errorf("session %s ends at %s but is due at %s", s.id, s.deadline, s.due.at)
		}
	}
	if resuming != t.resuming {
		return fmt.Errorf("%d sessions have to resume before they end, counted %d", resuming, t.resuming)
	}
	return nil
}

// checkSettled verifies that no grantable claim waits, no wait is hopeless, and there is no
// deadlock.
func (t *Table) checkSettled() error {
	for _, c := range t.everyClaim() {
		if t.grantable(c) {
			return fmt.Errorf("claim %s waits though R5 allows it", c.ref())
		}
		if t.hopeless(c) {
			return fmt.Errorf("claim %s waits though it is hopeless", c.ref())
		}
	}
	if t.blockingWaits > 0 {
		simulated := t.simulateReleases()
		if set := simulated.deadlockSet(); len(set) > 0 {
			return fmt.Errorf("deadlock: %s", simulated.describeDeadlock(set))
		}
	}
	return nil
}
