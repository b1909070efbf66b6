package table

import (
	"iter"

	"github.com/lockkeeper/lockkeeper"
)

// entries appends an entry of c for each of targets to room. The caller must not move them once they
// are in the lists of the nodes.
func (t *Table) entries(c *claim, targets []lockkeeper.Target, room []entry) []entry {
	for _, target := range targets {
		k, _ := kindOf(target.Mode)
		n := t.node(target.Path)
		room = append(room, entry{claim: c, node: n, kind: k, permits: int32(target.Units), most: int32(target.Limit)})
	}
	return room
}

// setEntries makes entries, which are in no list, those of c's targets.
func (c *claim) setEntries(entries []entry) {
	if len(entries) > 1 {
		c.own().targets = entries
	} else if p := &entries[0]; p != &c.one[0] {
		c.one[0] = *p
	}
	if c.converts != nil {
		c.own().converts = nil
	}
}

// places yields the node of p with p's kind, and the nodes above it with the intent that p implies.
func (p *entry) places() iter.Seq2[*node, kind] {
	return func(yield func(*node, kind) bool) {
		if !yield(p.node, p.kind) {
			return
		}
		for above := p.node.parent; above != nil; above = above.parent {
			if !yield(above, p.kind.intent()) {
				return
			}
		}
	}
}

// addIntents gives c, which is about to wait, an intent on every ancestor of its targets, each kind once
// per node (R3).
func (t *Table) addIntents(c *claim) {
	wanted := c.wanted()
	var intents []entry
	for i := range wanted {
		intent := wanted[i].kind.intent()
		for above := wanted[i].node.parent; above != nil; above = above.parent {
			if intents == nil {
				intents = t.ownWait(c).few[:0]
			}
			if !has(intents, above, intent) {
				intents = append(intents, entry{claim: c, node: above, kind: intent})
			}
		}
	}
	if len(intents) > len(c.few) {
		many := intents
		*c.wait = wait{many: &many, due: c.due} // it is c's own
	}
}

// has reports whether one of entries has that node and kind.
func has(entries []entry, n *node, k kind) bool {
	for i := range entries {
		if entries[i].node == n && entries[i].kind == k {
			return true
		}
	}
	return false
}

// dropIntents is the reverse of addIntents; c must have left the queues.
func (t *Table) dropIntents(c *claim) {
	if c.intents() != nil {
		*c.wait = wait{due: c.due} // it is c's own
	}
}
