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

	intents [fewIntents][][]entry // memory of so many entries, less one
}

func (t *Table) newClaim() *claim {
	if n := len(t.spare.claims); n > 0 {
		c := t.spare.claims[n-1]
		t.spare.claims = t.spare.claims[:n-1]
		return c
	}
	return &claim{cold: &plain}
}

func (t *Table) newNode() *node {
	if n := len(t.spare.nodes); n > 0 {
		nd := t.spare.nodes[n-1]
		t.spare.nodes = t.spare.nodes[:n-1]
		return nd
	}
	return new(node)
}

// fewIntents is the largest number of intents whose memory is used again. A path has as many ancestors as
// slashes, so it is enough for nearly all claims.
const fewIntents = 4

// newIntents returns memory for n entries.
func (t *Table) newIntents(n int) []entry {
	if n <= fewIntents {
		if spare := t.spare.intents[n-1]; len(spare) > 0 {
			t.spare.intents[n-1] = spare[:len(spare)-1]
			return spare[len(spare)-1]
		}
	}
	return make([]entry, 0, n)
}

// spareIntents keeps the memory of entries.
func (t *Table) spareIntents(entries []entry) {
	if n := cap(entries); n <= fewIntents && len(t.spare.intents[n-1]) < mostSpare {
		clear(entries)
		t.spare.intents[n-1] = append(t.spare.intents[n-1], entries[:0])
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
			rare, due := c.cold, c.due
			if rare != &plain {
				*rare = plain
			}
			*c = claim{cold: rare, due: due}
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
	t.packEndings()
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
		delete(t.nodes, n.path)
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
	w, slots := n.waiters, n.slots
	if w != nil {
		w.permits = w.permits[:0]
	}
	if slots != nil {
		slots.taken, slots.low = slots.taken[:0], 0
	}
	*n = node{waiters: w, slots: slots}
	t.spare.nodes = append(t.spare.nodes, n)
}
