package sqllock

import "github.com/lockkeeper/lockkeeper"

// has reports whether l has latched a path exclusively.
func (l *memoryLink) has(path lockkeeper.Path) bool { return l.latched[path] || l.latched[""] }

// mayWrite sees that a claim is written by somebody who may.
func (m *memory) mayWrite(l *memoryLink, ref lockkeeper.Ref, ends bool) {
	if _, known := m.tables.sessions[ref.Session]; known && !l.locked[ref.Session] {
		m.blame("claim %s is written, and the row of its session is not locked", ref)
	}
	l.ended[ref] = ends
}

// mayAdd sees that nobody begins to hold or to wait anywhere that was not latched.
// What remains of a hold that ended needs no latch: it stands in nobody's way.
func (m *memory) mayAdd(l *memoryLink, t targetRow) {
	if t.class != classUnacked && !l.has(t.path) {
		m.blame("claim %s gets a target %s of class %d, which is not latched", t.ref, t.path, t.class)
	}
}

// mayRemove sees that nobody loses a target that was not latched, but by the end of a
// hold, which the row of its session guards.
func (m *memory) mayRemove(l *memoryLink, t targetRow) {
	ends := t.class == classUnacked || t.class == classHeld && l.ended[t.ref]
	if !l.has(t.path) && !ends {
		m.blame("claim %s loses its target %s of class %d, which is not latched", t.ref, t.path, t.class)
	}
}
