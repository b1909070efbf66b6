package table

// The table reuses the memory of ended claims, nodes and tombstones, so that steps leave almost no
// work to the garbage collector. It reuses the memory of an ended claim only in the next step,
// because Table.Status returns the claim until then.

// mostSpare bounds the length of each list in spare.
const mostSpare = 1024

type spare struct {
	claims []*claim
	nodes  []*node
	tombs  []*tombstone
	waits  []*wait
}

func (t *Table) newClaim() *claim {
	if n := len(t.spare.claims); n > 0 {
		c := t.spare.claims[n-1]
		t.spare.claims = t.spare.claims[:n-1]
		return c
	}
	return &claim{wait: &noWait, cold: &plain}
}

func (t *Table) newNode() *node {
	if n := len(t.spare.nodes); n > 0 {
		nd := t.spare.nodes[n-1]
		t.spare.nodes = t.spare.nodes[:n-1]
		return nd
	}
	return new(node)
}

func (t *Table) newWait(c *claim) *wait {
	if n := len(t.spare.waits); n > 0 {
		w := t.spare.waits[n-1]
		t.spare.waits = t.spare.waits[:n-1]
		if w.due != nil {
			w.due.claim = c
		}
		return w
	}
	return new(wait)
}

// spareWait keeps the memory of a wait that has nothing in it.
func (t *Table) spareWait(w *wait) {
	if len(t.spare.waits) < mostSpare {
		if w.due != nil {
			w.due.claim = nil
		}
		t.spare.waits = append(t.spare.waits, w)
	}
}

func (t *Table) newTombstone() *tombstone {
	if n := len(t.spare.tombs); n > 0 {
		tomb := t.spare.tombs[n-1]
		t.spare.tombs = t.spare.tombs[:n-1]
		return tomb
	}
	return &tombstone{ended: &plainEnd}
}

// recycle moves the memory of claims and tombstones that ended in the last step to the spare lists.
func (t *Table) recycle() {
	for _, c := range t.endedRoom {
		if len(t.spare.claims) < mostSpare {
			rare := c.cold
			if rare != &plain {
				*rare = plain
			}
			if c.wait != &noWait {
				t.setBound(c, forever)
				t.dropWait(c)
			}
			*c = claim{wait: &noWait, cold: rare}
			t.spare.claims = append(t.spare.claims, c)
		}
	}
	clear(t.endedRoom)
	t.endedRoom = t.endedRoom[:0]
	for _, tomb := range t.endedClaims {
		if !tomb.kept && !tomb.remembered {
			t.spareTombstone(tomb)
		}
	}
	clear(t.endedClaims)
	t.endedClaims = t.endedClaims[:0]
	t.endedByRef, t.indexed = nil, 0
	t.packEndings(true)
}

func (t *Table) spareTombstone(tomb *tombstone) {
	if len(t.spare.tombs) == mostSpare {
		return
	}
	rare := tomb.ended
	if rare != &plainEnd {
		*rare = plainEnd
	}
	*tomb = tombstone{ended: rare}
	t.spare.tombs = append(t.spare.tombs, tomb)
}

// mostIdle is the number of nodes that stay in Table.nodes without entries. Most paths are claimed
// again soon, and then need no new node.
const mostIdle = 1 << 12

// rest keeps n, which has no references any more, and deletes the node that has rested for longest if
// there are too many, with those above it that only it needed.
func (t *Table) rest(n *node) {
	n.idles = true
	if len(t.idle) < mostIdle {
		t.idle = append(t.idle, n)
		return
	}
	oldest := t.idle[t.oldestIdle]
	t.idle[t.oldestIdle] = n
	t.oldestIdle = (t.oldestIdle + 1) % mostIdle
	oldest.idles = false
	for n := oldest; n != nil && n.refs == 0 && !n.idles; {
		parent := n.parent
		t.nodes.remove(n)
		t.spareNode(n)
		if parent != nil {
			parent.refs--
		}
		n = parent
	}
}

// spareNode keeps the memory of a node that has no entries any more.
func (t *Table) spareNode(n *node) {
	if n.touched != 0 || n.changed != 0 || len(t.spare.nodes) >= mostSpare {
		return // this step still has to visit it
	}
	if l := n.extra; l != nil && l.pool != nil {
		*l.pool = pool{limits: l.pool.limits[:0], slots: slots{taken: l.pool.slots.taken[:0]}}
	}
	*n = node{extra: n.extra}
	t.spare.nodes = append(t.spare.nodes, n)
}
