package wire

import "github.com/lockkeeper/lockkeeper"

// NewAnswer returns s, the answer to a claim of w by the given session, as a message. It leaves out
// the fields that only repeat w.
func NewAnswer(s *lockkeeper.Status, session string, w *lockkeeper.Want) *Status {
	if !repeats(s, w) {
		return NewStatus(s, session)
	}
	brief := *s
	brief.Label, brief.Inside, brief.Revision, brief.Priority = lockkeeper.Label{}, lockkeeper.Ref{}, 0, 0
	brief.Grants = nil
	m := NewStatus(&brief, session)
	m.AsAsked = true
	for i := range s.Grants {
		if g := &s.Grants[i]; g.InUse != 0 || g.Slot != 0 {
			m.Grants = newPermits(s.Grants)
			break
		}
	}
	return m
}

// repeats reports whether s has the label, the hold that it is inside, the revision, the priority
// and the targets of w.
func repeats(s *lockkeeper.Status, w *lockkeeper.Want) bool {
	if s.Label != w.Label || s.Inside != w.Inside || s.Revision != w.Revision || s.Priority != w.Priority ||
		len(s.Grants) != len(w.Targets) {
		return false
	}
	for i := range s.Grants {
		if s.Grants[i].Target != w.Targets[i] {
			return false
		}
	}
	return true
}

// newPermits returns only the fields of grants that the engine sets.
func newPermits(grants []lockkeeper.Grant) []*Grant {
	ms := make([]*Grant, len(grants))
	for i, g := range grants {
		ms[i] = &Grant{InUse: int64(g.InUse), Slot: int64(g.Slot)}
	}
	return ms
}
