package wire

import (
	"cmp"

	"github.com/lockkeeper/lockkeeper"
)

// NewStatus returns s as a message, without its session if that is the given one.
func NewStatus(s *lockkeeper.Status, session string) *Status {
	m := &Status{
		Id: s.Ref.ID, As: s.As, Note: s.Note, Link: s.Link, Inside: newRef(s.Inside), Change: s.Change, Revision: s.Revision,
		State: State(s.State), Reason: Reason(s.Reason), Text: s.Text, Priority: int64(s.Priority),
		Fence: s.Fence, Unconfirmed: s.Unconfirmed, Converting: s.Converting, Asked: newAsked(s.Asked), Lapsed: s.Lapsed,
		Age:      newDuration(s.Age),
		Left:     newDuration(s.Left),
		Ticket:   s.Ticket,
		Position: int64(s.Position),
		Eta:      newDuration(s.ETA),
		Blockers: newBlockers(s.Blockers),
	}
	if s.Ref.Session != session {
		m.Session = s.Ref.Session
	}
	m.Grants = make([]*Grant, len(s.Grants))
	for i := range s.Grants {
		g := &s.Grants[i]
		m.Grants[i] = &Grant{
			Path:  string(g.Path),
			Mode:  Mode(g.Mode),
			Units: int64(g.Units),
			Limit: int64(g.Limit),
			InUse: int64(g.InUse),
			Slot:  int64(g.Slot),
		}
	}
	for _, w := range s.Waits {
		m.Waits = append(m.Waits, WaitReason(w))
	}
	return m
}

// Read returns the value of s, which is of the given session unless s names another.
func (s *Status) Read(session string) lockkeeper.Status {
	status := lockkeeper.Status{
		Ref:      lockkeeper.Ref{Session: cmp.Or(s.GetSession(), session), ID: s.GetId()},
		Inside:   s.GetInside().read(),
		Change:   s.GetChange(),
		Revision: s.GetRevision(),
		State:    narrow[lockkeeper.State](s.GetState()), Reason: narrow[lockkeeper.Reason](s.GetReason()), Text: s.GetText(),
		Priority: readInt(s.GetPriority()), Label: readLabel(s),
		Fence: s.GetFence(), Unconfirmed: s.GetUnconfirmed(), Converting: s.GetConverting(),
		Asked: s.GetAsked().read(), Lapsed: s.GetLapsed(),
		Age:      readDuration(s.GetAge()),
		Left:     readDuration(s.GetLeft()),
		Ticket:   s.GetTicket(),
		Position: readInt(s.GetPosition()),
		ETA:      readDuration(s.GetEta()),
		Blockers: readBlockers(s.GetBlockers()),
	}
	if n := len(s.GetGrants()); n > 0 {
		status.Grants = make([]lockkeeper.Grant, n)
	}
	for i, g := range s.GetGrants() {
		status.Grants[i] = lockkeeper.Grant{Target: readTarget(g), InUse: readInt(g.GetInUse()), Slot: readInt(g.GetSlot())}
	}
	for _, w := range s.GetWaits() {
		status.Waits = append(status.Waits, narrow[lockkeeper.WaitReason](w))
	}
	return status
}

func newAsked(a *lockkeeper.Asked) *Asked {
	if a == nil {
		return nil
	}
	return &Asked{
		By: newRef(a.By), Reason: Reason(a.Reason), Left: newDuration(a.Left), EndsAt: newDuration(a.EndsAt),
		As: a.As, Note: a.Note, Link: a.Link,
	}
}

func (a *Asked) read() *lockkeeper.Asked {
	if a == nil {
		return nil
	}
	return &lockkeeper.Asked{
		By:     a.GetBy().read(),
		Label:  readLabel(a),
		Reason: narrow[lockkeeper.Reason](a.GetReason()),
		Left:   readDuration(a.GetLeft()),
		EndsAt: readDuration(a.GetEndsAt()),
	}
}

func newBlockers(blockers []lockkeeper.Blocker) []*Blocker {
	var ms []*Blocker
	for i := range blockers {
		b := &blockers[i]
		ms = append(ms, &Blocker{
			Ref: newRef(b.Ref), Why: WaitReason(b.Why), Path: string(b.Path), Mode: Mode(b.Mode), Units: int64(b.Units),
			Age: newDuration(b.Age), Left: newDuration(b.Left), As: b.As, Note: b.Note, Link: b.Link,
		})
	}
	return ms
}

func readBlockers(ms []*Blocker) []lockkeeper.Blocker {
	var blockers []lockkeeper.Blocker
	for _, m := range ms {
		blockers = append(blockers, lockkeeper.Blocker{
			Ref: m.GetRef().read(), Why: narrow[lockkeeper.WaitReason](m.GetWhy()), Path: lockkeeper.Path(m.GetPath()),
			Mode: narrow[lockkeeper.Mode](m.GetMode()), Units: readInt(m.GetUnits()), Age: readDuration(m.GetAge()),
			Left: readDuration(m.GetLeft()), Label: readLabel(m),
		})
	}
	return blockers
}
