package table

import (
	"container/heap"
	"slices"
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

	older, newer *holdTime // neighbours in holdTimes.ring; nil in holdTimes.latest
	index        int       // in holdTimes.latest
}

// holdTimes has all hold times by path, and in the order of before: first ring, then latest. Holds
// end in the order of time, so each end of a hold costs little: the ring needs no search, and the
// heap has only the hold times of one instant. Thousands of holds may end at one instant.
type holdTimes struct {
	of     map[lockkeeper.Path]*holdTime
	ring   holdTime     // the oldest is ring.newer, the newest ring.older; the ring is closed by this element
	latest holdTimeHeap // the hold times of the latest instant
}

func newHoldTimes() *holdTimes {
	ps := &holdTimes{of: make(map[lockkeeper.Path]*holdTime)}
	ps.ring.older, ps.ring.newer = &ps.ring, &ps.ring
	return ps
}

// holdTimeHeap is a heap by path.
type holdTimeHeap []*holdTime

func (h holdTimeHeap) Len() int           { return len(h) }
func (h holdTimeHeap) Less(i, k int) bool { return h[i].path < h[k].path }

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
	held := c.held()
	for i := range held {
		path := held[i].node.path
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
	ps.insert(p)
}

// set changes p.
func (ps *holdTimes) set(p *holdTime, lasts, at time.Duration) {
	p.estimate = lasts
	switch {
	case p.at == at:
	case p.at < at && p.newer == nil && len(ps.latest) == 1:
		p.at = at // it stays the latest
	default:
		ps.remove(p)
		p.at = at
		ps.insert(p)
	}
}

// insert puts p at its position. Only a loaded hold time is older than the latest instant.
func (ps *holdTimes) insert(p *holdTime) {
	if len(ps.latest) > 0 && p.at > ps.latest[0].at {
		if len(ps.latest) > 1 {
			slices.SortFunc(ps.latest, func(a, b *holdTime) int { return strings.Compare(string(a.path), string(b.path)) })
		}
		for i, q := range ps.latest {
			ps.link(q, ps.ring.older)
			ps.latest[i] = nil
		}
		ps.latest = ps.latest[:0]
	}
	after := ps.ring.older
	if after == &ps.ring || p.at > after.at {
		if len(ps.latest) == 0 || p.at == ps.latest[0].at {
			heap.Push(&ps.latest, p)
			return
		}
	}
	for after != &ps.ring && p.before(after) {
		after = after.older
	}
	ps.link(p, after)
}

// link puts p into the ring behind after.
func (ps *holdTimes) link(p, after *holdTime) {
	p.older, p.newer = after, after.newer
	after.newer.older, after.newer = p, p
}

// remove is the reverse of insert.
func (ps *holdTimes) remove(p *holdTime) {
	if p.newer == nil {
		heap.Remove(&ps.latest, p.index)
		return
	}
	p.older.newer, p.newer.older = p.newer, p.older
	p.older, p.newer = nil, nil
}

// oldest returns the first hold time in the order of before; there must be one.
func (ps *holdTimes) oldest() *holdTime {
	if p := ps.ring.newer; p != &ps.ring {
		return p
	}
	return ps.latest[0]
}

// evictHoldTimes forgets the oldest hold times beyond MaxHoldTimes.
func (t *Table) evictHoldTimes() {
	for len(t.holdTimes.of) > MaxHoldTimes {
		path := t.holdTimes.oldest().path
		t.removeHoldTime(path)
		t.markHoldTime(path)
	}
}

func (t *Table) removeHoldTime(path lockkeeper.Path) {
	if p := t.holdTimes.of[path]; p != nil {
		t.holdTimes.remove(p)
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
		for target := range c.requested() {
			if p := t.holdTimes.of[target.Path]; p != nil {
				length = max(length, p.estimate)
			}
		}
	}
	if c.want.MaxHold > 0 {
		length = min(length, c.want.MaxHold+c.want.Grace)
	}
	return length
}
