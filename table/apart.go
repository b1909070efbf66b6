package table

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An owner of a table may keep plain claims apart from it: exclusive claims of one path each, which
// nobody else is in the way of. It draws their numbers from the table's counters, and moves them into
// the table ([Table.Load]) before the table has another claim that meets them. Between steps it asks
// the table by the methods of this file.

// Unused reports whether an exclusive claim of path would meet nothing here: no claim, held or
// waiting, no freeze, and no unacknowledged holder. Only a command [Claim], or a Load, ends that.
func (t *Table) Unused(path lockkeeper.Path) bool {
	if n := t.nodes.find(path); n != nil && !n.unused() || t.unacked.byPath[path] != nil || len(t.freezes.all) > 0 {
		return false
	}
	ks := conflicts[kindIX]
	for above := range path.Ancestors() {
		if n := t.nodes.find(above); n != nil && (n.heldAgainst(ks, nil) || n.extra != nil && n.extra.meets(ks, nil)) {
			return false
		}
		if h := t.unacked.byPath[above]; h != nil && h.kinds[kindS]+h.kinds[kindX] > 0 {
			return false
		}
	}
	return true
}

// DrawTicket draws the ticket of a claim that arrives apart from the table (R4).
func (t *Table) DrawTicket() uint64 {
	t.tickets++
	return t.tickets
}

// DrawFence draws the fence of a grant apart from the table (R13).
func (t *Table) DrawFence() uint64 {
	t.fences++
	return t.fences
}

// DrawChange draws the number of a change of a claim that is apart from the table.
func (t *Table) DrawChange() uint64 {
	t.changes++
	return t.changes
}

// Live reports whether the table has the claim, held or waiting.
func (t *Table) Live(ref lockkeeper.Ref) bool { return t.find(ref) != nil }

// Claims returns the number of live claims that the table has of a session.
func (t *Table) Claims(session string) int {
	if s := t.sessions[session]; s != nil {
		return s.claims.length
	}
	return 0
}

// Enclosing reports whether a live claim names ref as the hold that it is made in (R15), whether or
// not the table knows ref.
func (t *Table) Enclosing(ref lockkeeper.Ref) bool {
	return len(t.nestedIn) > 0 && len(t.nestedIn[ref]) > 0
}

// Endless reports whether the session of k is open under that key and never expires (R11).
func (t *Table) Endless(k lockkeeper.Key) bool {
	s := t.keyed(k)
	return s != nil && s.deadline == forever
}

// HoldTime returns the estimate of how long holds of the path last (R17); false if there is none.
func (t *Table) HoldTime(path lockkeeper.Path) (time.Duration, bool) {
	if p := t.holdTimes.of[path]; p != nil {
		return p.estimate, true
	}
	return 0, false
}
