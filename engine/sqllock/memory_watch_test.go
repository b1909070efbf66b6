package sqllock

import "github.com/lockkeeper/lockkeeper"

// has reports whether l has latched a path exclusively.
func (l *memoryLink) has(path lockkeeper.Path) bool { return l.latched[path] || l.latched[""] }

// mayWrite checks that the transaction that writes a claim may do so.
func (m *memory) mayWrite(l *memoryLink, ref lockkeeper.Ref, ends bool) {
	if _, known := m.tables.sessions[ref.Session]; known && !l.locked[ref.Session] {
		m.blame("claim %s is written, and the row of its session is not locked", ref)
	}
	l.ended[ref] = ends
}

// mayAdd checks that no claim begins to hold or to wait at a path that the transaction has not
// latched. The row of an ended hold needs no latch: it blocks no claim.
func (m *memory) mayAdd(l *memoryLink, t targetRow) {
	if t.class != classUnacked && !l.has(t.path) {
		m.blame("claim %s gets a target %s of class %d, which is not latched", t.ref, t.path, t.class)
	}
}

// mayRemove checks that no claim loses a target that the transaction has not latched, except by the
// end of a hold, which the row of its session guards.
func (m *memory) mayRemove(l *memoryLink, t targetRow) {
	ends := t.class == classUnacked || t.class == classHeld && l.ended[t.ref]
	if !l.has(t.path) && !ends {
		m.blame("claim %s loses its target %s of class %d, which is not latched", t.ref, t.path, t.class)
	}
}
