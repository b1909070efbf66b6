package table

import (
	"container/heap"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// unackedHolds has the unacknowledged holders (R12). The engine forced the end of their holds, and
// they may not know it yet. It indexes them by claim and by path, so that a step visits only the
// holders that concern it.
type unackedHolds struct {
	bySession map[string]map[uint64]*tombstone // by session and id
	byPath    map[lockkeeper.Path]*unackedNode // by target paths and ancestors of target paths
	due       unackedEnds
}

// An unackedNode counts what unacknowledged holders may still hold at one path.
type unackedNode struct {
	kinds   [kinds]int // number of targets and intents of each kind
	units   int        // of permits
	targets map[*tombstone]struct{}
}

// An unackedEnd is the instant from which a holder can no longer rely on its hold. It stays in the
// heap until then, even if the holder acknowledges the end before.
type unackedEnd struct {
	at   time.Duration
	tomb *tombstone
}

// unackedEnds is a heap, the earliest first.
type unackedEnds []unackedEnd

func (g unackedEnds) Len() int           { return len(g) }
func (g unackedEnds) Less(i, k int) bool { return g[i].at < g[k].at }
func (g unackedEnds) Swap(i, k int)      { g[i], g[k] = g[k], g[i] }
func (g *unackedEnds) Push(x any)        { *g = append(*g, x.(unackedEnd)) }

func (g *unackedEnds) Pop() any {
	last := len(*g) - 1
	x := (*g)[last]
	(*g)[last] = unackedEnd{}
	*g = (*g)[:last]
	return x
}

// addUnacked adds tomb until tomb.unackedUntil.
func (t *Table) addUnacked(tomb *tombstone) {
	g := &t.unacked
	if g.bySession == nil {
		g.bySession, g.byPath = make(map[string]map[uint64]*tombstone), make(map[lockkeeper.Path]*unackedNode)
	}
	if g.bySession[tomb.session.id] == nil {
		g.bySession[tomb.session.id] = make(map[uint64]*tombstone)
	}
	g.bySession[tomb.session.id][tomb.id] = tomb
	heap.Push(&g.due, unackedEnd{tomb.unackedUntil, tomb})
	for _, grant := range tomb.grants() {
		k, intent := kindOf(grant.Mode)
		for path := range grant.Path.Ancestors() {
			g.node(path).kinds[intent]++
		}
		h := g.node(grant.Path)
		h.kinds[k]++
		h.units += grant.Units
		h.targets[tomb] = struct{}{}
	}
}

// node returns the counts of a path, and creates them if there are none.
func (g *unackedHolds) node(node lockkeeper.Path) *unackedNode {
	h := g.byPath[node]
	if h == nil {
		h = &unackedNode{targets: make(map[*tombstone]struct{})}
		g.byPath[node] = h
	}
	return h
}

// removeUnacked is the reverse of addUnacked. It does nothing if tomb is not there.
func (t *Table) removeUnacked(tomb *tombstone) {
	g := &t.unacked
	if g.bySession[tomb.session.id][tomb.id] != tomb {
		return
	}
	if delete(g.bySession[tomb.session.id], tomb.id); len(g.bySession[tomb.session.id]) == 0 {
		delete(g.bySession, tomb.session.id)
	}
	for _, grant := range tomb.grants() {
		k, intent := kindOf(grant.Mode)
		for path := range grant.Path.Ancestors() {
			g.release(path, intent)
		}
		h := g.byPath[grant.Path]
		h.units -= grant.Units
		delete(h.targets, tomb)
		g.release(grant.Path, k)
	}
}

func (g *unackedHolds) release(path lockkeeper.Path, k kind) {
	h := g.byPath[path]
	if h.kinds[k]--; h.kinds == [kinds]int{} {
		delete(g.byPath, path)
	}
}

// expireUnacked removes the holders whose end has passed.
func (t *Table) expireUnacked() {
	for g := &t.unacked; len(g.due) > 0 && g.due[0].at <= t.now; {
		t.removeUnacked(heap.Pop(&g.due).(unackedEnd).tomb)
	}
}

// acknowledgeEnds removes the unacknowledged holders of a session that pick selects, because they
// now know the end of their holds. It reports whether it removed any. A holder whose end has passed
// keeps its record: a restored table does not index it, and must have the same records.
func (t *Table) acknowledgeEnds(session string, pick func(id uint64) bool) bool {
	t.expireUnacked()
	found := false
	for id, tomb := range t.unacked.bySession[session] { // order does not matter: each by itself
		if t.work++; pick(id) {
			t.removeUnacked(tomb)
			tomb.own().unackedUntil = 0
			t.markEnded(tomb)
			found = true
		}
	}
	return found
}

// meetsUnacked reports whether c's hold is incompatible with one that an unacknowledged holder may
// still rely on (R12).
func (t *Table) meetsUnacked(c *claim) bool {
	if len(t.unacked.due) == 0 {
		return false
	}
	t.expireUnacked()
	held := c.held()
	for i := range held {
		p := &held[i]
		for n, k := range p.places() {
			h := t.unacked.byPath[n.path]
			if h == nil {
				continue
			}
			t.work++
			for against := conflicts[k]; against != 0; {
				if h.kinds[against.next()] > 0 {
					return true
				}
			}
			if k == kindP && h.units > 0 && n.units()+h.units > p.limit() {
				return true
			}
		}
	}
	return false
}
