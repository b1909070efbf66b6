package wire

import "github.com/lockkeeper/lockkeeper"

// The forms of the generated code that the product itself does not use: the tests compare what it
// writes and reads with them.

// newKey returns the session and the epoch of k.
func newKey(k lockkeeper.Key) *Key { return &Key{Session: k.Session, Epoch: k.Epoch} }

// newLease returns a message with the first claims of l, up to about leaseBytes, and a copy of l
// with the remaining claims.
func newLease(l *lockkeeper.Lease) (m *Lease, left lockkeeper.Lease) {
	left = *l
	m = &Lease{Epoch: l.Key.Epoch, Ttl: newDuration(l.TTL), Number: l.Number, EndsAt: newDuration(l.EndsAt)}
	for size := 0; len(left.Claims) > 0 && size < leaseBytes; left.Claims = left.Claims[1:] {
		claim := NewStatus(&left.Claims[0], l.Key.Session)
		size += claim.SizeVT()
		m.Claims = append(m.Claims, claim)
	}
	return m, left
}

// readAnswer returns the value of s, which answers a claim of w by the given session.
func (s *Status) readAnswer(session string, w *lockkeeper.Want) lockkeeper.Status {
	status := s.Read(session)
	if !s.GetAsAsked() {
		return status
	}
	status.Label, status.Inside, status.Revision, status.Priority = w.Label, w.Inside, w.Revision, w.Priority
	status.Grants = nil
	if len(w.Targets) > 0 {
		status.Grants = make([]lockkeeper.Grant, len(w.Targets))
	}
	for i, t := range w.Targets {
		status.Grants[i].Target = t
		if i < len(s.GetGrants()) {
			g := s.GetGrants()[i]
			status.Grants[i].InUse, status.Grants[i].Slot = readInt(g.GetInUse()), readInt(g.GetSlot())
		}
	}
	return status
}
