package table

import (
	"fmt"
	"slices"
)

// checkTree verifies that a node exists exactly where a claim has an entry or a node is below it, or
// idles, and that the counters and rings of the nodes say what the held claims hold.
func (t *Table) checkTree() error {
	refs, counts := make(map[*node]uint32), make(map[*node]*[kinds]uint32)
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		counts[n] = new([kinds]uint32)
		if n.path != path || n.touched != 0 || n.changed != 0 {
			return fmt.Errorf("node %s: path %s, touched %b, changed %b", path, n.path, n.touched, n.changed)
		}
		if n.parent != nil {
			refs[n.parent]++
		}
		parent := (*node)(nil)
		for above := range path.Ancestors() {
			parent = t.nodes.find(above)
		}
		if n.parent != parent {
			return fmt.Errorf("node %s: its parent is another node", path)
		}
	}
	for _, c := range t.everyClaim() {
		held, wanted := c.held(), c.wanted()
		for i := range wanted {
			refs[wanted[i].node]++
		}
		for i := range held {
			p := &held[i]
			refs[p.node]++
			if counts[p.node] == nil {
				return fmt.Errorf("claim %s: it holds %s, which has no node", c.ref(), p.node.path)
			}
			counts[p.node][p.kind]++
			for above := range p.node.path.Ancestors() {
				if n := t.nodes.find(above); n != nil {
					counts[n][p.kind.intent()]++
				}
			}
		}
	}
	idle := make(map[*node]bool)
	for _, n := range t.idle {
		idle[n] = true
	}
	ringed := make(map[*node]bool)
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		switch {
		case n.refs != refs[n] || n.refs == 0 && !n.idles || n.idles != idle[n]:
			return fmt.Errorf("node %s: %d references, counted %d; it idles: %t", path, n.refs, refs[n], n.idles)
		}
		for k, count := range counts[n] {
			if n.count(kind(k)) != count || n.kinds.has(kind(k)) != (count > 0) {
				return fmt.Errorf("node %s: it counts %d %s, the holds are %d", path, n.count(kind(k)), kind(k), count)
			}
		}
		if err := t.checkRing(n, ringed); err != nil {
			return err
		}
	}
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		if ringed[n] != (n.parent != nil && n.holdings() != nothing) {
			return fmt.Errorf("node %s: it is in the ring of its parent: %t, against its holds", path, ringed[n])
		}
	}
	return nil
}

// checkRing verifies that the ring of n has nodes below it with holds, with writers first, and adds them
// to ringed.
func (t *Table) checkRing(n *node, ringed map[*node]bool) error {
	var ring []*node
	for c := n.below(); c != nil; {
		ring = append(ring, c)
		ringed[c] = true
		if t.nodes.find(c.path) != c || c.parent != n || c.next.prev != c || len(ring) > t.nodes.length {
			return fmt.Errorf("node %s: its ring is broken at %s", n.path, c.path)
		}
		if c = c.next; c == n.below() {
			break
		}
	}
	for i, c := range ring {
		if c.holdings() == nothing || i > 0 && c.holdings() > ring[i-1].holdings() {
			return fmt.Errorf("node %s: %s is not at its position in the ring", n.path, c.path)
		}
	}
	return nil
}

// checkEntries verifies that the lists of the nodes have exactly the entries of the claims, in order,
// and that a claim has intents exactly while it waits.
func (t *Table) checkEntries() error {
	listed, waiting := make(map[*entry]bool), make(map[*node]uint32)
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		units := 0
		for p := n.held; p != nil; p = p.next {
			if p.node != n || !p.in(p.claim.held()) || p.next != nil && p.next.prev != p {
				return fmt.Errorf("node %s: an entry of claim %s is listed as held %s", path, p.claim.ref(), p.kind)
			}
			listed[p] = true
			units += p.units()
		}
		if units != n.units() {
			return fmt.Errorf("node %s: %d units counted, %d held", path, n.units(), units)
		}
		if err := n.checkQueues(listed); err != nil {
			return err
		}
	}
	for _, c := range t.everyClaim() {
		held := c.held()
		for i := range held {
			if !listed[&held[i]] {
				return fmt.Errorf("claim %s holds %s unlisted", c.ref(), held[i].node.path)
			}
		}
		for p := range c.pending() {
			waiting[p.node]++
			if c.queued != listed[p] {
				return fmt.Errorf("claim %s: queued %t, but listed at %s %t", c.ref(), c.queued, p.node.path, !c.queued)
			}
		}
		if err := c.checkIntents(); err != nil {
			return err
		}
	}
	for path, n := range t.nodes.all() { // order does not matter: any failure is one
		if n.waits() != (waiting[n] > 0) || n.waits() && n.extra.waiting != waiting[n] {
			return fmt.Errorf("node %s: %d entries wait, of which it counts others", path, waiting[n])
		}
	}
	return nil
}

// checkIntents verifies that c has the intents that its wanted entries imply, each once.
func (c *claim) checkIntents() error {
	n, wanted, intents := 0, c.wanted(), c.intents()
	for i := range wanted {
		for above := wanted[i].node.parent; above != nil; above = above.parent {
			if !has(intents, above, wanted[i].kind.intent()) {
				return fmt.Errorf("claim %s waits without an intent on %s", c.ref(), above.path)
			}
		}
	}
	for i := range intents {
		p := &intents[i]
		if has(intents[:i], p.node, p.kind) || !slices.ContainsFunc(wanted, func(w entry) bool {
			return w.node != p.node && p.node.path.Covers(w.node.path) && w.kind.intent() == p.kind
		}) {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("claim %s has %d intents too many", c.ref(), n)
	}
	return nil
}

// in reports whether p is one of ps.
func (p *entry) in(ps []entry) bool {
	for i := range ps {
		if &ps[i] == p {
			return true
		}
	}
	return false
}

func (n *node) checkQueues(listed map[*entry]bool) error {
	var err error
	n.extra.all(func(p *entry) bool {
		listed[p] = true
		switch {
		case p.node != n || !p.in(p.claim.wanted()) && !p.in(p.claim.intents()):
			err = fmt.Errorf("node %s: an entry of claim %s is queued but not wanted here", n.path, p.claim.ref())
		case p.next != nil && p.next.claim != p.claim && !p.claim.before(p.next.claim):
			err = fmt.Errorf("node %s: claim %s is queued before %s", n.path, p.claim.ref(), p.next.claim.ref())
		case p.next != nil && p.next.prev != p:
			err = fmt.Errorf("node %s: the queue is broken behind claim %s", n.path, p.claim.ref())
		}
		return err == nil
	})
	return err
}
