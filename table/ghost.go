package table

import (
	"container/heap"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// ghosts has the holds that were forced to end and whose holders may not know it yet (R12). It
// indexes them by claim and by path, so that a step visits only ghosts that concern it.
type ghosts struct {
	of  map[string]map[uint64]*tombstone // by session and id
	at  map[lockkeeper.Path]*haunt       // by their target paths and the ancestors of those
	due ghostEnds
}

// A haunt counts what the ghosts at one path may still hold there.
type haunt struct {
	kinds   [kinds]int // number of targets and intents of each kind
	units   int        // of permits
	targets map[*tombstone]struct{}
}

// A ghostEnd is the end of a ghost. It stays in the heap until then, even if the ghost goes before.
type ghostEnd struct {
	at   time.Duration
	tomb *tombstone
}

// ghostEnds is a heap, the earliest first.
type ghostEnds []ghostEnd

func (g ghostEnds) Len() int           { return len(g) }
func (g ghostEnds) Less(i, k int) bool { return g[i].at < g[k].at }
func (g ghostEnds) Swap(i, k int)      { g[i], g[k] = g[k], g[i] }
func (g *ghostEnds) Push(x any)        { *g = append(*g, x.(ghostEnd)) }

func (g *ghostEnds) Pop() any {
	last := len(*g) - 1
	x := (*g)[last]
	(*g)[last] = ghostEnd{}
	*g = (*g)[:last]
	return x
}

// haunt makes tomb a ghost until tomb.ghost.
func (t *Table) haunt(tomb *tombstone) {
	g := &t.ghosts
	if g.of == nil {
		g.of, g.at = make(map[string]map[uint64]*tombstone), make(map[lockkeeper.Path]*haunt)
	}
	if g.of[tomb.ref.Session] == nil {
		g.of[tomb.ref.Session] = make(map[uint64]*tombstone)
	}
	g.of[tomb.ref.Session][tomb.ref.ID] = tomb
	heap.Push(&g.due, ghostEnd{tomb.ghost, tomb})
	for _, grant := range tomb.grants {
		k, intent := kindOf(grant.Mode)
		for path := range grant.Path.Ancestors() {
			g.path(path).kinds[intent]++
		}
		h := g.path(grant.Path)
		h.kinds[k]++
		h.units += grant.Units
		h.targets[tomb] = struct{}{}
	}
}

// path returns the haunt of a path, and creates it if there is none.
func (g *ghosts) path(path lockkeeper.Path) *haunt {
	h := g.at[path]
	if h == nil {
		h = &haunt{targets: make(map[*tombstone]struct{})}
		g.at[path] = h
	}
	return h
}

// unhaunt is the reverse of haunt; it does nothing if tomb is no ghost.
func (t *Table) unhaunt(tomb *tombstone) {
	g := &t.ghosts
	if g.of[tomb.ref.Session][tomb.ref.ID] != tomb {
		return
	}
	if delete(g.of[tomb.ref.Session], tomb.ref.ID); len(g.of[tomb.ref.Session]) == 0 {
		delete(g.of, tomb.ref.Session)
	}
	for _, grant := range tomb.grants {
		k, intent := kindOf(grant.Mode)
		for path := range grant.Path.Ancestors() {
			g.leave(path, intent)
		}
		h := g.at[grant.Path]
		h.units -= grant.Units
		delete(h.targets, tomb)
		g.leave(grant.Path, k)
	}
}

func (g *ghosts) leave(path lockkeeper.Path, k kind) {
	h := g.at[path]
	if h.kinds[k]--; h.kinds == [kinds]int{} {
		delete(g.at, path)
	}
}

// forgetGhosts removes the ghosts whose end has passed.
func (t *Table) forgetGhosts() {
	for g := &t.ghosts; len(g.due) > 0 && g.due[0].at <= t.now; {
		t.unhaunt(heap.Pop(&g.due).(ghostEnd).tomb)
	}
}

// layGhosts removes the ghosts of a session that pick selects, because their holder knows that they
// ended. It reports whether there were any.
func (t *Table) layGhosts(session string, pick func(id uint64) bool) bool {
	laid := false
	for id, tomb := range t.ghosts.of[session] { // order does not matter: each by itself
		if t.work++; pick(id) {
			t.unhaunt(tomb)
			tomb.ghost = 0
			t.markEnded(tomb)
			laid = true
		}
	}
	return laid
}

// meetsGhost reports whether what c holds is incompatible with a hold that was
// forced to end and whose holder may not know it yet (R12).
func (t *Table) meetsGhost(c *claim) bool {
	if len(t.ghosts.due) == 0 {
		return false
	}
	t.forgetGhosts()
	for i := range c.held {
		p := &c.held[i]
		h := t.ghosts.at[p.node.path]
		if h == nil {
			continue
		}
		t.work++
		for against := conflicts[p.kind]; against != 0; {
			if h.kinds[against.next()] > 0 {
				return true
			}
		}
		if p.kind == kindP && h.units > 0 && p.node.units+h.units > p.limit {
			return true
		}
	}
	return false
}
