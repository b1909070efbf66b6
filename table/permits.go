package table

import (
	"math/bits"
	"slices"
)

// A pool is the part of a node that only nodes with permits need.
type pool struct {
	limits []permitQueue // hard claims for permits, by limit, highest first
	slots  slots         // of held permits of one unit
	units  int32         // sum of held permits; see units
	held   uint32        // number of held entries for permits; see count
}

// needPool returns l.pool, and creates it if it is nil.
func (l *extra) needPool() *pool {
	if l.pool == nil {
		l.pool = new(pool)
	}
	return l.pool
}

// limits returns the queues of claims for permits, by limit, highest first.
func (l *extra) limits() []permitQueue {
	if l.pool == nil {
		return nil
	}
	return l.pool.limits
}

// A permitQueue has the claims that wait for permits of one path under one limit.
type permitQueue struct {
	limit int
	queue
}

// searchLimit returns the index at which the queue of a limit is, or would be inserted.
func (l *extra) searchLimit(limit int) (i int, found bool) {
	return slices.BinarySearchFunc(l.limits(), limit, func(q permitQueue, limit int) int { return limit - q.limit })
}

// permitQueue returns the queue of a limit, and inserts it if there is none.
func (l *extra) permitQueue(limit int) *queue {
	i, found := l.searchLimit(limit)
	p := l.needPool()
	if !found {
		p.limits = slices.Insert(p.limits, i, permitQueue{limit: limit})
	}
	return &p.limits[i].queue
}

// trim removes the queue of a limit if it is empty, so that unused limits cost nothing. It reports
// whether it did.
func (l *extra) trim(limit int) bool {
	i, found := l.searchLimit(limit)
	if !found || l.pool.limits[i].head != nil {
		return false
	}
	l.pool.limits = slices.Delete(l.pool.limits, i, i+1)
	return true
}

// unitsAhead returns the sum of the units that wait ahead of p and count against it (R7). It stops
// at a partial sum above bound.
func (l *extra) unitsAhead(p *entry, bound int) int {
	sum, limits := 0, l.limits()
	for i := range limits {
		if limits[i].limit < p.limit() {
			break // a smaller limit holds back no claim with a larger one
		}
		for q := limits[i].head; q != nil && q.claim.before(p.claim); q = q.next {
			if sum += q.units(); sum > bound {
				return sum
			}
		}
	}
	return sum
}

// fits is R7 for waiting permits: held units + units ahead in queues with a limit of at least p's +
// p's units <= p's limit.
func (p *entry) fits() bool {
	free := p.limit() - p.node.units() - p.units()
	return free >= 0 && (p.node.extra == nil || p.node.extra.unitsAhead(p, free) <= free)
}

// openPermits calls f with the waiting claims for permits at n that R7 may allow: for each limit
// the claims at the front that fit. For each limit it visits at most one claim per free unit, and
// one more.
func (n *node) openPermits(f func(*claim)) {
	limits := n.extra.limits()
	for i := range limits {
		limit := limits[i].limit
		cursors := make([]*entry, i+1)
		for j := range cursors {
			cursors[j] = limits[j].head
		}
		for sum := n.units(); sum < limit; {
			next := -1
			for j, p := range cursors {
				if p != nil && (next < 0 || p.claim.before(cursors[next].claim)) {
					next = j
				}
			}
			if next < 0 {
				break
			}
			p := cursors[next]
			if sum += p.units(); next == i {
				if sum > limit {
					break
				}
				f(p.claim)
			}
			cursors[next] = p.next
		}
	}
}

// slots are the slot numbers, from 1, that claims hold at a node. A hold of one unit has a slot.
type slots struct {
	taken []uint64 // bit i of word w: slot 64*w+i+1
	low   int      // words before this index have no free slot
}

// slots returns the slots of n.
func (n *node) slots() *slots { return &n.needExtra().needPool().slots }

// take gives out the lowest free slot.
func (s *slots) take() int {
	for s.low < len(s.taken) && s.taken[s.low] == ^uint64(0) {
		s.low++
	}
	if s.low == len(s.taken) {
		s.taken = append(s.taken, 0)
	}
	bit := bits.TrailingZeros64(^s.taken[s.low])
	s.taken[s.low] |= 1 << bit
	return 64*s.low + bit + 1
}

// slot takes the lowest free slot at n. It avoids slots that an unacknowledged holder may still
// use, if another slot up to limit is free (R12).
func (t *Table) slot(n *node, limit int) int {
	t.expireUnacked()
	h := t.unacked.byPath[n.path]
	if h == nil {
		return n.slots().take()
	}
	slots := n.slots()
	var avoided []int
	for g := range h.targets { // order does not matter: all of them
		t.work++
		for _, grant := range g.grants() {
			if grant.Path == n.path && grant.Slot > 0 && slots.occupy(grant.Slot) {
				avoided = append(avoided, grant.Slot)
			}
		}
	}
	slot := slots.take()
	for _, s := range avoided {
		slots.free(s)
	}
	if slot > limit {
		slots.free(slot)
		return slots.take()
	}
	return slot
}

// occupy takes the slot with that number. It returns false if the slot is taken.
func (s *slots) occupy(slot int) bool {
	word, bit := (slot-1)/64, (slot-1)%64
	for len(s.taken) <= word {
		s.taken = append(s.taken, 0)
	}
	if s.taken[word]&(1<<bit) != 0 {
		return false
	}
	s.taken[word] |= 1 << bit
	return true
}

func (s *slots) free(slot int) {
	word := (slot - 1) / 64
	s.taken[word] &^= 1 << ((slot - 1) % 64)
	s.low = min(s.low, word)
}
