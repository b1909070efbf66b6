package table

import (
	"container/heap"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// MaxPaces is for how many paths a table remembers how long they are held (R17).
const MaxHoldTimes = 1 << 10

// A pace is how long holds of one path lately lasted.
type pace struct {
	path  lockkeeper.Path
	lasts time.Duration
	at    time.Duration // end of the latest hold that counts
	index int           // in paces.ages
}

// paces has all remembered paces, by path, and as a heap with the oldest first: by the latest end,
// then by path. So each of thousands of holds that end at one instant costs log(MaxPaces).
type paces struct {
	of   map[lockkeeper.Path]*pace
	ages paceHeap
}

type paceHeap []*pace

func (h paceHeap) Len() int           { return len(h) }
func (h paceHeap) Less(i, k int) bool { return h[i].before(h[k]) }

func (h paceHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i, k
}

func (h *paceHeap) Push(x any) {
	p := x.(*pace)
	p.index = len(*h)
	*h = append(*h, p)
}

func (h *paceHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

// learn takes in how long c was held, which ends for that reason now.
func (t *Table) learn(c *claim, reason lockkeeper.Reason) {
	switch reason {
	case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Overdue:
	default:
		return // cut short, or nobody knows when it really ended
	}
	lasted := t.now - c.granted
	for i := range c.want.Targets {
		path := c.want.Targets[i].Path
		if p := t.paces.of[path]; p != nil {
			t.paces.set(p, p.lasts+(lasted-p.lasts)/4, t.now)
		} else {
			t.paces.add(path, lasted, t.now)
		}
		t.markPace(path)
	}
	t.forgetPaces()
}

// add notes the pace of a path that has none.
func (ps *paces) add(path lockkeeper.Path, lasts, at time.Duration) {
	p := &pace{path: path, lasts: lasts, at: at}
	ps.of[path] = p
	heap.Push(&ps.ages, p)
}

// set changes p.
func (ps *paces) set(p *pace, lasts, at time.Duration) {
	p.lasts, p.at = lasts, at
	heap.Fix(&ps.ages, p.index)
}

// forgetPaces forgets the oldest while there are too many.
func (t *Table) forgetPaces() {
	for len(t.paces.of) > MaxHoldTimes {
		path := t.paces.ages[0].path
		t.forgetPace(path)
		t.markPace(path)
	}
}

func (t *Table) forgetPace(path lockkeeper.Path) {
	if p := t.paces.of[path]; p != nil {
		heap.Remove(&t.paces.ages, p.index)
		delete(t.paces.of, path)
	}
}

func (p *pace) before(q *pace) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return strings.Compare(string(p.path), string(q.path)) < 0
}

// expected is how long a hold of c lasts, as far as is known; 0 if nothing is.
func (t *Table) expected(c *claim) time.Duration {
	length := c.want.Expected
	if length == 0 {
		for i := range c.want.Targets {
			if p := t.paces.of[c.want.Targets[i].Path]; p != nil {
				length = max(length, p.lasts)
			}
		}
	}
	if c.want.MaxHold > 0 {
		length = min(length, c.want.MaxHold+c.want.Grace)
	}
	return length
}
