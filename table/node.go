package table

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An entry is one claim at one node: a target of it, or an intent with which it waits. It is in the
// node's held list while the claim is held, and in a queue of the node while the claim waits. A
// converting claim has entries of both sorts.
type entry struct {
	claim      *claim
	node       *node
	prev, next *entry // neighbours in the one list that it is in, if any
	permits    int32  // see units
	most       int32  // see limit
	kind       kind
	several    bool // in a queue: its claim has other targets, so a waiter may meet the claim in two queues
}

// units returns the number of permits of p; 0 if it is for none.
func (p *entry) units() int { return int(p.permits) }

// limit returns, of permits, the limit that the claim itself states.
func (p *entry) limit() int { return int(p.most) }

// target returns the target that p stands for; p must not be an intent.
func (p *entry) target() lockkeeper.Target {
	return lockkeeper.Target{Path: p.node.path, Mode: p.kind.mode(), Units: p.units(), Limit: p.limit()}
}

// extra is the part of a node that most nodes do not need: only those at which claims wait, those with
// permits, and those above others. Soft claims are ahead of no claim, so rare has them apart. Claims
// that a freeze forbids are in no queue.
type extra struct {
	below   *node         // ring of the nodes below it with holds; see holdings. nil if there is none
	intents [kindS]uint32 // of the held entries below it, by the intent that they imply
	waiting uint32        // entries that wait here, queued or frozen
	queues  [kindP]*queue // hard claims and conversions by kind, in the order of R4; nil until there was one
	pool    *pool         // nil until a claim held permits, or waited for some
	rare    *rareWaiters  // nil until it is first needed
}

// needExtra returns n.extra, and creates it if it is nil.
func (n *node) needExtra() *extra {
	if n.extra == nil {
		n.extra = new(extra)
	}
	return n.extra
}

// waits reports whether a claim waits at n.
func (n *node) waits() bool { return n.extra != nil && n.extra.waiting > 0 }

// rareWaiters has the rarely needed lists of a node, by kind, so that a change at the node visits
// only the entries that it concerns.
type rareWaiters struct {
	soft    [kinds]queue
	frozen  [kinds]queue               // entries that a freeze forbids, in any order
	thieves [kinds]map[*entry]struct{} // queued entries whose claims steal

	disturbedAt time.Duration // when holds last ended here
	disturbed   kindSet       // kinds that ended then; cleared when a claim is queued or frozen here
}

// needRare returns l.rare, and creates it if it is nil.
func (l *extra) needRare() *rareWaiters {
	if l.rare == nil {
		l.rare = new(rareWaiters)
	}
	return l.rare
}

// eachOf calls f with the entries in the queues of the kinds ks.
func eachOf(qs *[kinds]queue, ks kindSet, f func(*entry) bool) {
	for ks != 0 {
		qs[ks.next()].each(f)
	}
}

// A queue is a list of entries in the order of R4.
type queue struct {
	head, tail *entry
	length     uint32
	several    uint32 // entries of claims with more than one target
}

// insert puts p at its position in the order of R4. New claims come last among equals, so the walk
// from the tail is short. looked is the number of entries that it passed.
func (q *queue) insert(p *entry) (looked int) {
	after := q.tail
	for after != nil && p.claim.before(after.claim) {
		after = after.prev
		looked++
	}
	p.prev = after
	if after == nil {
		p.next, q.head = q.head, p
	} else {
		p.next, after.next = after.next, p
	}
	if p.next == nil {
		q.tail = p
	} else {
		p.next.prev = p
	}
	q.length++
	if p.several = p.claim.several(); p.several {
		q.several++
	}
	return looked
}

// push inserts p at the head.
func (q *queue) push(p *entry) {
	q.length++
	p.several = false
	p.prev, p.next = nil, q.head
	if q.head = p; p.next == nil {
		q.tail = p
	} else {
		p.next.prev = p
	}
}

func (q *queue) remove(p *entry) {
	q.length--
	if p.several {
		q.several--
	}
	if p.prev == nil {
		q.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}

// queueOf returns the queue for p, and creates it if there is none.
func (l *extra) queueOf(p *entry) *queue {
	switch {
	case p.claim.soft():
		return &l.needRare().soft[p.kind]
	case p.kind == kindP:
		return l.permitQueue(p.limit())
	case l.queues[p.kind] == nil:
		l.queues[p.kind] = new(queue)
	}
	return l.queues[p.kind]
}

// first returns the first waiting claim of one kind; nil if none waits.
func (l *extra) first(k kind) *claim {
	if k != kindP {
		if head := l.queues[k].first(); head != nil {
			return head.claim
		}
		return nil
	}
	var first *claim
	limits := l.limits()
	for i := range limits {
		if head := limits[i].head; head != nil && (first == nil || head.claim.before(first)) {
			first = head.claim
		}
	}
	return first
}

// waitsFor reports whether a claim of one of the kinds ks waits ahead of c.
func (l *extra) waitsFor(ks kindSet, c *claim) bool {
	for ks != 0 {
		k := ks.next()
		if k < kindP && l.queues[k] == nil {
			continue
		}
		if first := l.first(k); first != nil && first.before(c) {
			return true
		}
	}
	return false
}

// addThief adds p to the thieves here; its claim must be queued.
func (l *extra) addThief(p *entry) {
	a := l.needRare()
	if a.thieves[p.kind] == nil {
		a.thieves[p.kind] = make(map[*entry]struct{})
	}
	a.thieves[p.kind][p] = struct{}{}
}

// removeThief is the reverse of addThief; it does nothing if p is not among the thieves.
func (l *extra) removeThief(p *entry) {
	if l.rare != nil {
		delete(l.rare.thieves[p.kind], p)
	}
}

// all calls f with every queued entry here, until f returns false.
func (l *extra) all(f func(*entry) bool) {
	if l == nil {
		return
	}
	for k := range l.queues {
		if !l.queues[k].each(f) {
			return
		}
	}
	limits := l.limits()
	for i := range limits {
		if !limits[i].each(f) {
			return
		}
	}
	if l.rare != nil {
		eachOf(&l.rare.soft, anyKind, f)
	}
}

// rank returns the number of entries in q before c. It searches from both ends, so it takes one
// step for a claim that has just arrived and for the first claim. looked is the number of steps.
func (q *queue) rank(c *claim) (rank, looked int) {
	for first, last := q.head, q.tail; first != nil; first, last = first.next, last.prev {
		if looked++; !first.claim.before(c) {
			return looked - 1, looked
		}
		if last.claim.before(c) {
			return int(q.length) - looked + 1, looked
		}
	}
	return int(q.length), looked
}

// eachOf calls f with the queued entries here of the kinds ks, except soft ones.
func (l *extra) eachOf(ks kindSet, f func(*entry) bool) {
	for k := range l.queues {
		if ks.has(kind(k)) {
			l.queues[k].each(f)
		}
	}
	if limits := l.limits(); ks.has(kindP) {
		for i := range limits {
			limits[i].each(f)
		}
	}
}

// meets reports whether a claim other than c has a queued entry of one of the kinds ks here, soft
// entries included.
func (l *extra) meets(ks kindSet, c *claim) bool {
	other := func(q *queue) bool { return q.first() != nil && (q.head.claim != c || q.head.next != nil) }
	for k := range kinds {
		switch {
		case !ks.has(k):
		case k < kindP && other(l.queues[k]), l.rare != nil && other(&l.rare.soft[k]):
			return true
		}
	}
	return ks.has(kindP) && slices.ContainsFunc(l.limits(), func(q permitQueue) bool { return other(&q.queue) })
}

// behind reports whether a claim waits here behind c.
func (l *extra) behind(c *claim) bool {
	after := func(q *queue) bool { return q.first() != nil && c.before(q.tail.claim) }
	for k := range l.queues {
		if after(l.queues[k]) {
			return true
		}
	}
	limits := l.limits()
	for i := range limits {
		if after(&limits[i].queue) {
			return true
		}
	}
	return l.rare != nil && slices.ContainsFunc(l.rare.soft[:], func(q queue) bool { return after(&q) })
}

func (q *queue) eachBefore(c *claim, f func(*entry) bool) bool {
	for p := q.head; p != nil && p.claim.before(c); p = p.next {
		if !f(p) {
			return false
		}
	}
	return true
}

// first returns the first entry of q, which may be nil; nil if q is empty.
func (q *queue) first() *entry {
	if q == nil {
		return nil
	}
	return q.head
}

// each calls f with the entries of q, which may be nil, until f returns false.
func (q *queue) each(f func(*entry) bool) bool {
	for p := q.first(); p != nil; p = p.next {
		if !f(p) {
			return false
		}
	}
	return true
}

// touch records that entries of the kinds ks left n, so that grantReady considers the claims that
// they blocked.
func (t *Table) touch(n *node, ks kindSet) {
	if !n.waits() {
		return
	}
	if n.touched == 0 {
		t.touched = append(t.touched, n)
	}
	n.touched |= ks
}
