package table

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// join enters c into its line of work, if that has more than c.
func (t *Table) join(c *claim) {
	ref := c.line()
	o := t.owners[ref]
	if o == nil {
		if ref == c.ref {
			return
		}
		o = &owner{ref: ref}
		t.owners[ref] = o
		if first := t.find(ref); first != nil && first.line() == ref {
			o.add(t, first)
		}
	}
	o.add(t, c)
}

func (o *owner) add(t *Table, c *claim) {
	if c.owner == o {
		return
	}
	c.owner = o
	if o.claims = append(o.claims, c); len(o.claims) == 2 {
		t.joint++
	}
}

// leaveOwner takes c, which ended, out of its line of work.
func (t *Table) leaveOwner(c *claim) {
	o := c.owner
	if o == nil {
		return
	}
	if len(o.claims) == 2 {
		t.joint--
	}
	if o.claims = remove(o.claims, c); len(o.claims) == 0 {
		delete(t.owners, o.ref)
	}
	c.owner = nil
}

// mayKnot reports whether a knot may come about because c stands in line where
// it does (R15). A claim that nobody waits for, on behalf of a line of work that
// has nothing else, can't be part of one; that is nearly every claim.
func (t *Table) mayKnot(c *claim) bool {
	if t.joint == 0 {
		return false
	}
	if c.converting() || (c.owner != nil && len(c.owner.claims) > 1) {
		return true
	}
	return slices.ContainsFunc(c.wanted, func(p place) bool { return p.node.line.behind(c) })
}

// erratic reports whether an end can make a knot. Else it only ever helps those
// who wait; but those whom soft claims let pass, and those with a larger limit, may then go before
// others that were ahead of them.
func (t *Table) erratic() bool { return t.joint > 0 && (t.softs > 0 || t.mixed > 0) }

// entangled reports whether any line of work waits while it holds or wants
// something else: without one there is no knot.
func (t *Table) entangled() bool {
	conversions := t.joint
	for _, o := range t.owners { // order does not matter: all of them count
		if len(o.claims) > 1 {
			if conversions--; o.claims[0].lineWaits() {
				return true
			}
		}
	}
	return conversions > 0
}

// refuseKnot refuses the youngest claim of a knot, if there is one (R15).
func (t *Table) refuseKnot() bool {
	if !t.suspect {
		return false
	}
	if !t.entangled() {
		t.suspect = false
		return false
	}
	knot := t.imagine().knot()
	if len(knot) == 0 {
		t.suspect = false
		return false
	}
	youngest := knot[0]
	for _, c := range knot {
		if c.ticket > youngest.ticket {
			youngest = c
		}
	}
	c := t.sessions[youngest.ref.Session].claims[youngest.ref.ID]
	t.giveUp(c, lockkeeper.Deadlock, spell(knot))
	return true
}

// imagine is the table as it would be if every line of work that does not wait
// released all it holds, again and again: only what is stuck is left waiting.
func (t *Table) imagine() *Table {
	if t.dream == nil {
		t.dream = New()
	}
	im := t.dream
	im.forgetDream()
	im.now = t.now
	all := im.ready[:0]
	for _, s := range t.sessions { // order does not matter: sorted below
		if len(s.claims) == 0 {
			continue
		}
		if im.sessions[s.id] == nil {
			im.sessions[s.id] = &session{id: s.id, resumed: true, claims: make(map[uint64]*claim)}
		}
		for _, c := range s.claims { // order does not matter: sorted below
			all = append(all, c)
		}
	}
	sortClaims(all)
	for _, c := range all {
		im.copyOf(c)
	}
	clear(all)
	for again := true; again; {
		fences := im.fences
		again = im.releaseIdle()
		im.grantReady()
		again = again || im.fences != fences
	}
	return im
}

// forgetDream makes what an imagined table was left with room for the next.
func (t *Table) forgetDream() {
	t.recycle()
	for _, s := range t.sessions { // order does not matter: all of them go
		for _, c := range s.claims { // order does not matter: all of them go
			t.unlink(c, false)
			t.spent = append(t.spent, c)
		}
	}
	t.recycle()
	t.arrivals, t.touched = t.arrivals[:0], t.touched[:0]
	t.events = t.events[:0]
}

// copyOf adds c as it stands to an imagined table; what a freeze forbids is not there.
func (t *Table) copyOf(c *claim) {
	s := t.sessions[c.ref.Session]
	if c.frozen && c.waiting() {
		return
	}
	d := t.newClaim()
	d.ref, d.session, d.want, d.ticket, d.fence, d.grants, d.bound = c.ref, s, c.want, c.ticket, c.fence, c.grants, forever
	d.want.Quiet, d.want.Steal, d.want.Lasts, d.want.MaxHold = 0, lockkeeper.NoSteal, 0, 0
	d.due.claim, d.due.at = d, forever
	s.claims[d.ref.ID] = d
	t.join(d)
	d.held = t.copyPlaces(d, c.held, d.few[:0])
	for i := range d.held {
		d.held[i].node.hold(&d.held[i])
	}
	if c.frozen || len(c.wanted) == 0 {
		for i := range d.grants {
			if slot := d.grants[i].Slot; slot > 0 {
				t.nodes[d.grants[i].Path].slots.occupy(slot)
			}
		}
		return
	}
	room := d.few[:0]
	if len(d.held) > 0 {
		room = nil
		t.joint++
	}
	d.wanted = t.copyPlaces(d, c.wanted, room)
	t.line(d)
}

// copyPlaces makes places of d like those of another claim.
func (t *Table) copyPlaces(d *claim, places, room []place) []place {
	for _, p := range places {
		room = append(room, place{claim: d, node: t.node(p.node.path), kind: p.kind, units: p.units, limit: p.limit})
	}
	return room
}

// releaseIdle ends the holds of every line of work that does not wait; it
// reports whether there were any.
func (t *Table) releaseIdle() bool {
	var idle []*claim
	for _, s := range t.sessions { // order does not matter: all of them end
		for _, c := range s.claims { // order does not matter: all of them end
			if !c.lineWaits() {
				idle = append(idle, c)
			}
		}
	}
	for _, c := range idle {
		t.unlink(c, true)
		c.ended = true
		t.spent = append(t.spent, c)
	}
	return len(idle) > 0
}

// lineWaits reports whether c's line of work waits for anything.
func (c *claim) lineWaits() bool {
	if c.owner == nil {
		return len(c.wanted) > 0
	}
	return slices.ContainsFunc(c.owner.claims, func(d *claim) bool { return len(d.wanted) > 0 })
}

// knot is what is stuck in an imagined table, without those that nothing needs.
func (t *Table) knot() []*claim {
	var stuck []*claim
	for _, s := range t.sessions { // order does not matter: sorted below
		for _, c := range s.claims { // order does not matter: sorted below
			if len(c.wanted) > 0 {
				stuck = append(stuck, c)
			}
		}
	}
	sortClaims(stuck)
	for {
		needed := stuck[:0:0]
		for _, c := range stuck {
			if slices.ContainsFunc(stuck, func(d *claim) bool { return d.needs(c) }) {
				needed = append(needed, c)
			}
		}
		if len(needed) == len(stuck) {
			return stuck
		}
		stuck = needed
	}
}

// needs reports whether c waits for anything of d's line of work.
func (c *claim) needs(d *claim) bool {
	found := false
	c.obstacles(func(p *place, _ lockkeeper.WaitReason) bool {
		found = p.claim.sameOwner(d)
		return !found
	})
	return found
}

// spell says how the claims of a knot wait for each other.
func spell(knot []*claim) string {
	var said []string
	for _, c := range knot {
		c.obstacles(func(p *place, _ lockkeeper.WaitReason) bool {
			said = append(said, fmt.Sprintf("%s waits for %s of %s", c.line(), p.node.path, p.claim.line()))
			return false
		})
		if len(said) == lockkeeper.MaxBlockers {
			break
		}
	}
	return strings.Join(said, ", ")
}
