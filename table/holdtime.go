package table

import (
	"container/heap"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// MaxHoldTimes is the number of paths for which a table estimates how long they are held (R17).
const MaxHoldTimes = 1 << 10

// A holdTime is the estimate of how long holds of one path last.
type holdTime struct {
	path     lockkeeper.Path
	estimate time.Duration
	at       time.Duration // end of the latest hold that the estimate includes
	index    int           // in holdTimes.ages
}

// holdTimes has all hold times by path, and in a heap ordered by end and then by path, so that each
// end of a hold costs O(log MaxHoldTimes), also if thousands of holds end at one instant.
type holdTimes struct {
	of   map[lockkeeper.Path]*holdTime
	ages holdTimeHeap
}

type holdTimeHeap []*holdTime

func (h holdTimeHeap) Len() int           { return len(h) }
func (h holdTimeHeap) Less(i, k int) bool { return h[i].before(h[k]) }

func (h holdTimeHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i, k
}

func (h *holdTimeHeap) Push(x any) {
	p := x.(*holdTime)
	p.index = len(*h)
	*h = append(*h, p)
}

func (h *holdTimeHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}

// recordHoldTime updates the hold times of c's paths. c was held, and ends now for reason.
func (t *Table) recordHoldTime(c *claim, reason lockkeeper.Reason) {
	switch reason {
	case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Overdue:
	default:
		return // something cut the hold short, or its real end is unknown
	}
	lasted := t.now - c.granted
	for i := range c.want.Targets {
		path := c.want.Targets[i].Path
		if p := t.holdTimes.of[path]; p != nil {
			t.holdTimes.set(p, p.estimate+(lasted-p.estimate)/4, t.now)
		} else {
			t.holdTimes.add(path, lasted, t.now)
		}
		t.markHoldTime(path)
	}
	t.evictHoldTimes()
}

// add adds the hold time of a path that has none.
func (ps *holdTimes) add(path lockkeeper.Path, lasts, at time.Duration) {
	p := &holdTime{path: path, estimate: lasts, at: at}
	ps.of[path] = p
	heap.Push(&ps.ages, p)
}

// set changes p.
func (ps *holdTimes) set(p *holdTime, lasts, at time.Duration) {
	p.estimate, p.at = lasts, at
	heap.Fix(&ps.ages, p.index)
}

// evictHoldTimes forgets the oldest hold times beyond MaxHoldTimes.
func (t *Table) evictHoldTimes() {
	for len(t.holdTimes.of) > MaxHoldTimes {
		path := t.holdTimes.ages[0].path
		t.removeHoldTime(path)
		t.markHoldTime(path)
	}
}

func (t *Table) removeHoldTime(path lockkeeper.Path) {
	if p := t.holdTimes.of[path]; p != nil {
		heap.Remove(&t.holdTimes.ages, p.index)
		delete(t.holdTimes.of, path)
	}
}

func (p *holdTime) before(q *holdTime) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return strings.Compare(string(p.path), string(q.path)) < 0
}

// expected returns how long a hold of c should last: as announced, or else as estimated; 0 if
// unknown.
func (t *Table) expected(c *claim) time.Duration {
	length := c.want.Expected
	if length == 0 {
		for i := range c.want.Targets {
			if p := t.holdTimes.of[c.want.Targets[i].Path]; p != nil {
				length = max(length, p.estimate)
			}
		}
	}
	if c.want.MaxHold > 0 {
		length = min(length, c.want.MaxHold+c.want.Grace)
	}
	return length
}
