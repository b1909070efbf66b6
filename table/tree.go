package table

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// A node is one path of the tree. It exists as long as a claim has an entry at it or there is a node
// below it, and then idles for a while; see mostIdle.
//
// A held claim has entries at its targets only. Its intents on their ancestors are in the counters of
// the nodes above: many are held below one node, but the rules mostly ask whether any are.
type node struct {
	path    lockkeeper.Path
	parent  *node                 // nil for a tree
	held    *entry                // held entries at it, newest first
	prev    *node                 // neighbours in the ring of its parent, if it has holds; see holdings
	next    *node                 //
	link    *node                 // see nodeIndex
	extra   *extra                // nil until it is first needed
	counts  [kindP - kindS]uint32 // of held entries at it, shared and exclusive; see count
	refs    uint32                // entries of targets at it, and nodes below it
	kinds   kindSet               // those of which it counts any
	idles   bool                  // it is in Table.idle, perhaps with references again
	touched kindSet               // kinds of entries that left since the last grantReady
	changed kindSet               // kinds of entries that came or left since the last update of asks
}

// node returns the node of a path with one more reference, and creates it if there is none, and those
// above it.
func (t *Table) node(path lockkeeper.Path) *node {
	n := t.nodes.find(path)
	if n == nil {
		n = t.newNode()
		n.path = path
		if i := strings.LastIndexByte(string(path), '/'); i > 0 {
			n.parent = t.node(path[:i])
		}
		t.nodes.add(n)
	}
	n.refs++
	return n
}

func (t *Table) unref(n *node) {
	if n.refs--; n.refs == 0 && !n.idles {
		t.rest(n)
	}
}

// unused reports whether no claim holds n or waits for it, with an intent or a target.
func (n *node) unused() bool {
	return !n.heldAgainst(anyKind, nil) && !n.waits()
}

// units returns the number of permits that are held at n.
func (n *node) units() int {
	if n.extra == nil || n.extra.pool == nil {
		return 0
	}
	return int(n.extra.pool.units)
}

// count returns the number of held entries at n of kind k, or of those below it that imply the intent k.
func (n *node) count(k kind) uint32 {
	switch {
	case k == kindS || k == kindX:
		return n.counts[k-kindS]
	case n.extra == nil:
		return 0
	case k < kindS:
		return n.extra.intents[k]
	case n.extra.pool == nil:
		return 0
	}
	return n.extra.pool.held
}

// hold adds p to the held entries of its node, and its intents to the counters above.
func (p *entry) hold() {
	n := p.node
	p.prev, p.next = nil, n.held
	if p.next != nil {
		p.next.prev = p
	}
	n.held = p
	if p.permits != 0 {
		n.needExtra().needPool().units += p.permits
	}
	n.add(p.kind, 1)
	for above := n.parent; above != nil; above = above.parent {
		above.add(p.kind.intent(), 1)
	}
}

// drop is the reverse of hold.
func (p *entry) drop() {
	n := p.node
	if p.prev == nil {
		n.held = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	if p.permits != 0 {
		n.extra.pool.units -= p.permits
	}
	n.add(p.kind, ^uint32(0))
	for above := n.parent; above != nil; above = above.parent {
		above.add(p.kind.intent(), ^uint32(0))
	}
}

// hold adds p to the held entries, and marks the asks of thieves at its node and above for an update.
func (t *Table) hold(p *entry) {
	p.hold()
	t.changeAbove(p)
}

// drop is the reverse of hold.
func (t *Table) drop(p *entry) {
	p.drop()
	t.changeAbove(p)
}

// holdings says what is held at a node and below it.
type holdings uint8

const (
	nothing holdings = iota
	readers          // shared holds only
	writers          // others too
)

func (n *node) holdings() holdings {
	switch {
	case n.kinds == 0:
		return nothing
	case n.kinds&^(kindS.set()|kindIS.set()) == 0:
		return readers
	}
	return writers
}

// add adds by to the counter of k, and moves n in the ring of its parent if that changes its holdings: in
// a ring, nodes with writers come first, the newest of them at the front.
func (n *node) add(k kind, by uint32) {
	var counter *uint32
	switch k {
	case kindS, kindX:
		counter = &n.counts[k-kindS]
	case kindP:
		counter = &n.needExtra().needPool().held
	default:
		counter = &n.needExtra().intents[k]
	}
	if *counter > 1 || *counter == 1 && by == 1 {
		*counter += by
		return // its holdings stay the same
	}
	before := n.holdings()
	*counter += by
	n.kinds ^= k.set()
	after := n.holdings()
	if n.parent == nil || before == after {
		return
	}
	if before != nothing {
		n.leaveRing()
	}
	if after != nothing {
		n.joinRing(after == writers)
	}
}

func (n *node) joinRing(front bool) {
	ring := &n.parent.needExtra().below
	first := *ring
	if first == nil {
		n.prev, n.next, *ring = n, n, n
		return
	}
	n.prev, n.next = first.prev, first
	first.prev.next, first.prev = n, n
	if front {
		*ring = n
	}
}

func (n *node) leaveRing() {
	switch ring := &n.parent.extra.below; {
	case n.next == n:
		*ring = nil
	case *ring == n:
		*ring = n.next
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}

// below returns the first node in the ring of n; nil if it is empty.
func (n *node) below() *node {
	if n.extra == nil {
		return nil
	}
	return n.extra.below
}

// holders calls f with the entries held at n and below it that count at n as one of the kinds ks, until
// f returns false. It reports whether no call did. Intents come first. It visits no other holds than
// those that it yields, except that it searches writers among readers below the same child.
func (n *node) holders(ks kindSet, f func(*entry) bool) bool {
	if intents := ks & (kindIS.set() | kindIX.set()); intents != 0 && !n.holdersBelow(intents, f) {
		return false
	}
	for p := n.held; p != nil; p = p.next {
		if ks.has(p.kind) && !f(p) {
			return false
		}
	}
	return true
}

// holdersBelow calls f with the entries held below n that imply one of the intents there, until f
// returns false.
func (n *node) holdersBelow(intents kindSet, f func(*entry) bool) bool {
	c := n.below()
	if c == nil {
		return true
	}
	for {
		if !intents.has(kindIS) && c.holdings() != writers {
			return true // so are all that follow
		}
		for p := c.held; p != nil; p = p.next {
			if intents.has(p.kind.intent()) && !f(p) {
				return false
			}
		}
		if !c.holdersBelow(intents, f) {
			return false
		}
		if c = c.next; c == n.below() {
			return true
		}
	}
}

// heldAgainst reports whether another claim than c holds one of the kinds ks here.
func (n *node) heldAgainst(ks kindSet, c *claim) bool {
	if ks &= n.kinds; ks == 0 || c == nil || !c.holds {
		return ks != 0
	}
	for ks != 0 {
		if k := ks.next(); n.count(k) > c.holdsAt(n, k) {
			return true
		}
	}
	return false
}

// holdsAt returns how many of c's held entries count at n as k.
func (c *claim) holdsAt(n *node, k kind) (count uint32) {
	held := c.held()
	for i := range held {
		p := &held[i]
		switch {
		case p.node == n:
			if p.kind == k {
				count++
			}
		case p.kind.intent() == k && n.path.Covers(p.node.path):
			count++
		}
	}
	return count
}

// nodesWithWaiters lists the nodes at which a claim waits or waited, by path.
func (t *Table) nodesWithWaiters() []*node {
	var ns []*node
	for _, n := range t.nodes.all() { // order does not matter: sorted below
		if n.extra != nil {
			ns = append(ns, n)
		}
	}
	slices.SortFunc(ns, func(a, b *node) int { return strings.Compare(string(a.path), string(b.path)) })
	return ns
}
