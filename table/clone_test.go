package table

import (
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// clone copies a table between steps, but neither its paces nor the ends that it remembers. Tests that
// look at very many states use it; what is kept or sent goes through Snapshot.
func (t *Table) clone() *Table {
	u := &Table{
		now:           t.now,
		fences:        t.fences,
		tickets:       t.tickets,
		epochs:        t.epochs,
		changes:       t.changes,
		blockingWaits: t.blockingWaits,
		announced:     t.announced,
		resuming:      t.resuming,
		softWaiters:   t.softWaiters,
		mixedQueues:   t.mixedQueues,
		passes:        t.passes,
		sessions:      make(map[string]*session, len(t.sessions)),
		nestedIn:      make(map[lockkeeper.Ref][]*claim),
		thieves:       make(map[*claim]struct{}),
		holdTimes:     newHoldTimes(),
		freezes:       freezes{all: slices.Clone(t.freezes.all), by: maps.Clone(t.freezes.by)},
		frozen:        make(map[*claim]struct{}),
	}
	u.scratch = t.scratch // room, used by one of them at a time
	twins := make(map[*claim]*claim, 8)
	var twin func(c *claim) *claim
	twin = func(c *claim) *claim {
		if d := twins[c]; d != nil {
			return d
		}
		d := new(claim)
		*d = *c
		twins[c] = d
		d.want = u.sessions[c.session().id].termsLike(c.want)
		u.cloneEntries(d, c)
		for v, end := range c.asking { // order does not matter: a copy
			d.askFor(twin(v), end)
		}
		u.nest(d)
		for i, a := range d.asks {
			d.asks[i].by = twin(a.by)
		}
		u.setDue(d, c.dueAt())
		return d
	}
	for id, s := range t.sessions { // order does not matter: a copy
		r := new(session)
		*r = *s
		r.claims, r.endings, r.terms = idMap[*claim]{}, endings{}, nil
		r.due = timer{at: forever, session: r}
		u.schedule.set(&r.due, s.due.at)
		u.sessions[id] = r
	}
	for id, s := range t.sessions { // order does not matter: a copy
		for n, c := range s.claims.all() {
			u.sessions[id].claims.put(n, twin(c))
		}
	}
	for path, n := range t.nodes.all() { // order does not matter: a copy
		if twin := u.nodes.find(path); twin != nil {
			u.cloneLists(twin, n, twins)
		}
	}
	for c := range t.thieves { // order does not matter: a copy
		u.thieves[twins[c]] = struct{}{}
	}
	for c := range t.frozen { // order does not matter: a copy
		u.setFrozen(twins[c])
	}
	return u
}

// clone copies c, but not asking.
func (c *cold) clone() *cold {
	if c == &plain {
		return c
	}
	copied := *c
	copied.asking, copied.asks = nil, slices.Clone(c.asks)
	return &copied
}

// termsLike returns terms of s that are else those of another session's claim.
func (s *session) termsLike(of *terms) *terms {
	twin := *of
	twin.session = s
	return &twin
}

// cloneEntries gives d, a copy of c, entries of its own.
func (t *Table) cloneEntries(d, c *claim) {
	d.cold, d.wait = c.cold.clone(), &noWait
	t.setBound(d, c.bound())
	d.setEntries(t.clonePlaces(d, c.entries()))
	if c.converts != nil {
		d.own().converts = t.clonePlaces(d, c.converts)
	}
	if d.waits {
		t.addIntents(d)
	}
}

func (t *Table) clonePlaces(c *claim, places []entry) []entry {
	if len(places) == 0 {
		return nil
	}
	twins := make([]entry, len(places))
	for i, p := range places {
		twins[i] = entry{claim: c, node: t.node(p.node.path), kind: p.kind, permits: p.permits, most: p.most}
	}
	return twins
}

// cloneLists gives n's twin the lists that n has.
func (t *Table) cloneLists(twin, n *node, twins map[*claim]*claim) {
	find := func(places []entry, p *entry) *entry {
		for i := range places {
			if places[i].kind == p.kind && places[i].node == twin {
				return &places[i]
			}
		}
		return nil
	}
	var last *entry
	for p := n.held; p != nil; p = p.next {
		last = p
	}
	for p := last; p != nil; p = p.prev { // the newest comes first
		find(twins[p.claim].held(), p).hold()
	}
	if n.extra == nil {
		return
	}
	twin.needExtra()
	if p := n.extra.pool; p != nil {
		*twin.slots() = slots{taken: slices.Clone(p.slots.taken), low: p.slots.low}
	}
	n.extra.all(func(p *entry) bool {
		q := find(twins[p.claim].wanted(), p)
		if q == nil {
			q = find(twins[p.claim].intents(), p)
		}
		twin.extra.waiting++
		twin.extra.queueOf(q).insert(q)
		if q.claim.isThief {
			twin.extra.addThief(q)
		}
		return true
	})
}
