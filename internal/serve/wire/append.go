package wire

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lockkeeper/lockkeeper"
)

// The functions here write the content of messages straight from the values of package lockkeeper.
// The numbers are those of lockkeeper.proto.

func appendRef(b []byte, field protowire.Number, r *lockkeeper.Ref) []byte {
	if *r == (lockkeeper.Ref{}) {
		return b
	}
	b, at := open(b, field)
	b = appendText(b, 1, r.Session)
	b = appendUint(b, 2, r.ID)
	return closeAt(b, at)
}

func appendTarget(b []byte, t *lockkeeper.Target) []byte {
	b = appendText(b, 1, t.Path)
	b = appendUint(b, 2, uint64(t.Mode))
	b = appendInt(b, 3, t.Units)
	return appendInt(b, 4, t.Limit)
}

func appendWant(b []byte, w *lockkeeper.Want) []byte {
	b = appendUint(b, 1, w.ID)
	for i := range w.Targets {
		var at int
		b, at = open(b, fieldTargets)
		b = closeAt(appendTarget(b, &w.Targets[i]), at)
	}
	b = appendDuration(b, 3, w.Wait)
	b = appendLabel(b, 4, &w.Label)
	b = appendUint(b, 7, w.Revision)
	b = appendRef(b, 8, &w.Inside)
	b = appendSigned(b, 9, int64(w.Priority))
	b = appendUint(b, 10, uint64(w.WriterPolicy))
	b = appendDuration(b, 11, w.Quiet)
	b = appendUint(b, 12, uint64(w.Steal))
	b = appendDuration(b, 13, w.After)
	b = appendDuration(b, 14, w.MaxHold)
	b = appendDuration(b, 15, w.Grace)
	b = appendDuration(b, 16, w.Expected)
	b = appendDuration(b, 17, w.Freeze)
	return appendSigned(b, 18, int64(w.AfterTTL))
}

func appendEnding(b []byte, e *lockkeeper.Ending) []byte {
	b = appendUint(b, 1, uint64(e.Kind))
	b = appendUint(b, 2, e.ID)
	b = appendRef(b, 3, &e.Ref)
	b = appendText(b, 4, e.Path)
	b = appendBool(b, 5, e.Force)
	b = appendLabel(b, 6, &e.Label)
	if e.Lapse != (lockkeeper.Lapse{}) {
		b = appendLapse(b, 9, []lockkeeper.Lapse{e.Lapse})
	}
	return b
}

// appendLapse writes lapses that differ only in the claim.
func appendLapse(b []byte, field protowire.Number, same []lockkeeper.Lapse) []byte {
	b, at := open(b, field)
	b, ids := open(b, 1)
	for i := range same {
		b = binary.AppendUvarint(b, same[i].ID)
	}
	b = closeAt(b, ids)
	b = appendUint(b, 2, uint64(same[0].Reason))
	b = appendDuration(b, 3, same[0].EndsAt)
	return closeAt(b, at)
}

func appendSession(b []byte, s *lockkeeper.Session) []byte {
	b = appendText(b, 1, s.ID)
	b = appendDuration(b, 2, s.TTL)
	if len(s.Named) > 0 {
		var at int
		b, at = open(b, 3)
		for _, id := range s.Named {
			b = binary.AppendUvarint(b, id)
		}
		b = closeAt(b, at)
	}
	b = appendBool(b, 4, s.Outlive)
	b = appendUint(b, 5, s.Epoch)
	b = appendLabel(b, 6, &s.Label)
	// All lapses at the end of a session differ only in the claim.
	for rest := s.Lapsed; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Reason == rest[0].Reason && rest[n].EndsAt == rest[0].EndsAt {
			n++
		}
		b, rest = appendLapse(b, fieldLapsed, rest[:n]), rest[n:]
	}
	return b
}

// appendStatus writes a status: without its session if that is the given one; with the handle of its
// session unless that is 0; without the fields that only repeat the want, if that is not nil.
func appendStatus(b []byte, s *lockkeeper.Status, session string, handle uint64, want *lockkeeper.Want) []byte {
	asked := want != nil && repeats(s, want)
	if s.Ref.Session != session {
		b = appendText(b, 1, s.Ref.Session)
	}
	b = appendUint(b, 2, s.Ref.ID)
	b = appendUint(b, 3, s.Change)
	b = appendUint(b, 4, uint64(s.State))
	b = appendGrants(b, s.Grants, asked)
	b = appendUint(b, 6, s.Fence)
	b = appendDuration(b, 7, s.Left)
	b = appendDuration(b, 8, s.Age)
	b = appendUint(b, 9, s.Ticket)
	if !asked {
		b = appendLabel(b, 10, &s.Label)
		b = appendUint(b, 13, s.Revision)
		b = appendRef(b, 14, &s.Inside)
	}
	b = appendUint(b, 15, uint64(s.Reason))
	b = appendText(b, 16, s.Text)
	if !asked {
		b = appendSigned(b, 17, int64(s.Priority))
	}
	b = appendBool(b, 18, s.Unconfirmed)
	b = appendBool(b, 19, s.Converting)
	b = appendAsked(b, s.Asked)
	b = appendInt(b, 21, s.Position)
	b = appendDuration(b, 22, s.ETA)
	if len(s.Waits) > 0 {
		var at int
		b, at = open(b, 23)
		for _, w := range s.Waits {
			b = binary.AppendUvarint(b, uint64(w))
		}
		b = closeAt(b, at)
	}
	b = appendBlockers(b, 24, s.Blockers)
	b = appendBool(b, 25, s.Lapsed)
	b = appendUint(b, fieldHandle, handle)
	return appendBool(b, 27, asked)
}

// appendGrants writes grants. Of grants whose targets are those of the request it writes only what
// the engine sets, and nothing at all if it sets nothing.
func appendGrants(b []byte, grants []lockkeeper.Grant, asked bool) []byte {
	if asked && !slices.ContainsFunc(grants, func(g lockkeeper.Grant) bool { return g.InUse != 0 || g.Slot != 0 }) {
		return b
	}
	for i := range grants {
		g := &grants[i]
		var at int
		b, at = open(b, 5)
		if !asked {
			b = appendTarget(b, &g.Target)
		}
		b = appendInt(b, 5, g.InUse)
		b = appendInt(b, 6, g.Slot)
		b = closeAt(b, at)
	}
	return b
}

func appendAsked(b []byte, a *lockkeeper.Asked) []byte {
	if a == nil {
		return b
	}
	b, at := open(b, 20)
	b = appendRef(b, 1, &a.By)
	b = appendUint(b, 2, uint64(a.Reason))
	b = appendDuration(b, 3, a.Left)
	b = appendLabel(b, 4, &a.Label)
	b = appendDuration(b, 7, a.EndsAt)
	return closeAt(b, at)
}

func appendBlockers(b []byte, field protowire.Number, blockers []lockkeeper.Blocker) []byte {
	for i := range blockers {
		blocker := &blockers[i]
		var at int
		b, at = open(b, field)
		b = appendRef(b, 1, &blocker.Ref)
		b = appendUint(b, 2, uint64(blocker.Why))
		b = appendText(b, 3, blocker.Path)
		b = appendUint(b, 4, uint64(blocker.Mode))
		b = appendInt(b, 5, blocker.Units)
		b = appendDuration(b, 6, blocker.Age)
		b = appendDuration(b, 7, blocker.Left)
		b = appendLabel(b, 8, &blocker.Label)
		b = closeAt(b, at)
	}
	return b
}

// appendLease writes a lease with its first claims, up to about leaseBytes. It returns the remaining
// claims.
func appendLease(b []byte, l *lockkeeper.Lease) (_ []byte, left []lockkeeper.Status) {
	b = appendUint(b, 1, l.Key.Epoch)
	b = appendDuration(b, 2, l.TTL)
	left = l.Claims
	for begin := len(b); len(left) > 0 && len(b)-begin < leaseBytes; left = left[1:] {
		var at int
		b, at = open(b, 3)
		b = closeAt(appendStatus(b, &left[0], l.Key.Session, 0, nil), at)
	}
	b = appendUint(b, 4, l.Number)
	return appendDuration(b, 5, l.EndsAt), left
}

func appendError(b []byte, err error) []byte {
	e := asError(err)
	b = appendUint(b, 1, uint64(codeOf(e)))
	b = appendText(b, 2, e.Path)
	b = appendUint(b, 3, uint64(e.Reason))
	b = appendText(b, 4, detail(e))
	b = appendBlockers(b, 5, e.Blocked)
	b = appendInt(b, 6, e.Position)
	b = appendDuration(b, 7, e.ETA)
	b = appendUint(b, 8, e.Epoch)
	return appendDuration(b, 9, e.Stale)
}
