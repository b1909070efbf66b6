package table

// The room of claims, nodes and tombstones that are done with is used again, so
// that a table at work leaves next to nothing to the garbage collector, however
// much it holds. A claim that ended is reused from the next step on: until then
// Table.Status returns it.

// mostSpare bounds each of the lists of spare rooms.
const mostSpare = 1024

type spare struct {
	claims []*claim
	nodes  []*node
	tombs  []*tombstone
}

func (t *Table) newClaim() *claim {
	if n := len(t.spare.claims); n > 0 {
		c := t.spare.claims[n-1]
		t.spare.claims = t.spare.claims[:n-1]
		return c
	}
	return new(claim)
}

func (t *Table) newNode() *node {
	if n := len(t.spare.nodes); n > 0 {
		nd := t.spare.nodes[n-1]
		t.spare.nodes = t.spare.nodes[:n-1]
		return nd
	}
	return new(node)
}

func (t *Table) newTombstone() *tombstone {
	if n := len(t.spare.tombs); n > 0 {
		tomb := t.spare.tombs[n-1]
		t.spare.tombs = t.spare.tombs[:n-1]
		return tomb
	}
	return new(tombstone)
}

// recycle makes what ended in the last step room for what comes.
func (t *Table) recycle() {
	for _, c := range t.endedRoom {
		if len(t.spare.claims) < mostSpare {
			asking, asks := c.asking, c.asks[:0]
			clear(asking)
			*c = claim{asking: asking, asks: asks}
			t.spare.claims = append(t.spare.claims, c)
		}
	}
	clear(t.endedRoom)
	t.endedRoom = t.endedRoom[:0]
	for _, tomb := range t.endedClaims {
		if !tomb.kept && len(t.spare.tombs) < mostSpare {
			*tomb = tombstone{}
			t.spare.tombs = append(t.spare.tombs, tomb)
		}
	}
	clear(t.endedClaims)
	t.endedClaims = t.endedClaims[:0]
	t.endedByRef, t.indexed = nil, 0
}

// spareNode keeps the memory of a node that has no entries any more.
func (t *Table) spareNode(n *node) {
	if n.touched != 0 || n.changed != 0 || len(t.spare.nodes) >= mostSpare {
		return // a touched one is still to be looked at in this step
	}
	line, slots := n.waiters, n.slots.taken[:0]
	if line != nil {
		line.permits = line.permits[:0]
	}
	*n = node{waiters: line}
	n.slots.taken = slots
	t.spare.nodes = append(t.spare.nodes, n)
}
