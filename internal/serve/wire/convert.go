package wire

import (
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// endless is lockkeeper.Forever on the wire.
const endless = -1

func newDuration(d time.Duration) int64 {
	if d == lockkeeper.Forever {
		return endless
	}
	return int64(d)
}

func readDuration(d int64) time.Duration {
	if d == endless {
		return lockkeeper.Forever
	}
	return time.Duration(d)
}

// narrow converts the number of an enumeration. A number out of range becomes the highest one,
// which no enumeration uses, so that the checks of package lockkeeper refuse it.
func narrow[To ~uint8, From ~int32](n From) To {
	if n < 0 || n > math.MaxUint8 {
		return math.MaxUint8
	}
	return To(n)
}

// readInt converts a number to the nearest int. A number that an int can't hold stays beyond every
// bound of package lockkeeper.
func readInt(n int64) int { return int(min(max(n, math.MinInt), math.MaxInt)) }

func newRef(r lockkeeper.Ref) *Ref {
	if r == (lockkeeper.Ref{}) {
		return nil
	}
	return &Ref{Session: r.Session, Id: r.ID}
}

func (r *Ref) read() lockkeeper.Ref { return lockkeeper.Ref{Session: r.GetSession(), ID: r.GetId()} }

// labelled is implemented by messages with a label.
type labelled interface {
	GetAs() string
	GetNote() string
	GetLink() string
}

func readLabel(m labelled) lockkeeper.Label {
	return lockkeeper.Label{As: m.GetAs(), Note: m.GetNote(), Link: m.GetLink()}
}

// NewSession returns s as a message.
func NewSession(s *lockkeeper.Session) *Session {
	return &Session{
		Id:      s.ID,
		Ttl:     newDuration(s.TTL),
		Named:   s.Named,
		Lapsed:  newLapses(s.Lapsed),
		Outlive: s.Outlive,
		Epoch:   s.Epoch,
		As:      s.As,
		Note:    s.Note,
		Link:    s.Link,
	}
}

// newLapses returns one message for consecutive lapses that differ only in the claim, as all
// lapses at the end of a session do.
func newLapses(all []lockkeeper.Lapse) (ms []*Lapse) {
	for i, l := range all {
		if i == 0 || l.Reason != all[i-1].Reason || l.EndsAt != all[i-1].EndsAt {
			ms = append(ms, &Lapse{Reason: Reason(l.Reason), EndsAt: newDuration(l.EndsAt)})
		}
		last := ms[len(ms)-1]
		last.Ids = append(last.Ids, l.ID)
	}
	return ms
}

func readLapses(ms []*Lapse) (all []lockkeeper.Lapse) {
	for _, m := range ms {
		for _, id := range m.GetIds() {
			all = append(all, m.read(id))
		}
	}
	return all
}

// read returns the lapse of the claim id of m.
func (m *Lapse) read(id uint64) lockkeeper.Lapse {
	return lockkeeper.Lapse{ID: id, Reason: narrow[lockkeeper.Reason](m.GetReason()), EndsAt: readDuration(m.GetEndsAt())}
}

// Read returns the value of s. It shares s's list of claims.
func (s *Session) Read() lockkeeper.Session {
	return lockkeeper.Session{
		ID:      s.GetId(),
		TTL:     readDuration(s.GetTtl()),
		Named:   s.GetNamed(),
		Lapsed:  readLapses(s.GetLapsed()),
		Outlive: s.GetOutlive(),
		Epoch:   s.GetEpoch(),
		Label:   readLabel(s),
	}
}

// Read returns the value of k.
func (k *Key) Read() lockkeeper.Key {
	return lockkeeper.Key{Session: k.GetSession(), Epoch: k.GetEpoch()}
}

// leaseBytes is the size of claims at which appendLease adds no more to a message.
const leaseBytes = 64 << 10

// Read returns the value of l, which is a lease of the session.
func (l *Lease) Read(session string) lockkeeper.Lease {
	lease := lockkeeper.Lease{
		Key: lockkeeper.Key{Session: session, Epoch: l.GetEpoch()}, TTL: readDuration(l.GetTtl()), Number: l.GetNumber(),
		EndsAt: readDuration(l.GetEndsAt()),
	}
	for _, s := range l.GetClaims() {
		lease.Claims = append(lease.Claims, s.Read(session))
	}
	return lease
}

func newTarget(t lockkeeper.Target) *Target {
	return &Target{Path: string(t.Path), Mode: Mode(t.Mode), Units: int64(t.Units), Limit: int64(t.Limit)}
}

// targeted is implemented by messages with a target.
type targeted interface {
	GetPath() string
	GetMode() Mode
	GetUnits() int64
	GetLimit() int64
}

func readTarget(m targeted) lockkeeper.Target {
	return lockkeeper.Target{
		Path: lockkeeper.Path(m.GetPath()), Mode: narrow[lockkeeper.Mode](m.GetMode()),
		Units: readInt(m.GetUnits()), Limit: readInt(m.GetLimit()),
	}
}

// NewWant returns w as a message.
func NewWant(w *lockkeeper.Want) *Want {
	m := &Want{
		Id:           w.ID,
		Revision:     w.Revision,
		Inside:       newRef(w.Inside),
		Priority:     int64(w.Priority),
		Wait:         newDuration(w.Wait),
		WriterPolicy: WriterPolicy(w.WriterPolicy),
		Quiet:        newDuration(w.Quiet),
		Steal:        Steal(w.Steal),
		After:        newDuration(w.After),
		AfterTtl:     int64(w.AfterTTL),
		MaxHold:      newDuration(w.MaxHold),
		Grace:        newDuration(w.Grace),
		Expected:     newDuration(w.Expected),
		Freeze:       newDuration(w.Freeze),
		As:           w.As,
		Note:         w.Note,
		Link:         w.Link,
	}
	m.Targets = make([]*Target, len(w.Targets))
	for i, t := range w.Targets {
		m.Targets[i] = newTarget(t)
	}
	return m
}

// Read returns the value of m.
func (m *Want) Read() lockkeeper.Want {
	w := lockkeeper.Want{
		ID:           m.GetId(),
		Revision:     m.GetRevision(),
		Inside:       m.GetInside().read(),
		Priority:     readInt(m.GetPriority()),
		Wait:         readDuration(m.GetWait()),
		WriterPolicy: narrow[lockkeeper.WriterPolicy](m.GetWriterPolicy()),
		Quiet:        readDuration(m.GetQuiet()),
		Steal:        narrow[lockkeeper.Steal](m.GetSteal()),
		After:        readDuration(m.GetAfter()),
		AfterTTL:     readInt(m.GetAfterTtl()),
		MaxHold:      readDuration(m.GetMaxHold()),
		Grace:        readDuration(m.GetGrace()),
		Expected:     readDuration(m.GetExpected()),
		Freeze:       readDuration(m.GetFreeze()),
		Label:        readLabel(m),
	}
	w.Targets = make([]lockkeeper.Target, len(m.GetTargets()))
	for i, t := range m.GetTargets() {
		w.Targets[i] = readTarget(t)
	}
	return w
}

// NewEnding returns e as a message.
func NewEnding(e *lockkeeper.Ending) *Ending {
	m := &Ending{
		Kind:  EndingKind(e.Kind),
		Id:    e.ID,
		Ref:   newRef(e.Ref),
		Path:  string(e.Path),
		Force: e.Force,
		As:    e.As,
		Note:  e.Note,
		Link:  e.Link,
	}
	if e.Lapse != (lockkeeper.Lapse{}) {
		m.Lapse = newLapses([]lockkeeper.Lapse{e.Lapse})[0]
	}
	return m
}

// Read returns the value of m.
func (m *Ending) Read() lockkeeper.Ending {
	e := lockkeeper.Ending{
		Kind:  narrow[lockkeeper.EndingKind](m.GetKind()),
		ID:    m.GetId(),
		Ref:   m.GetRef().read(),
		Path:  lockkeeper.Path(m.GetPath()),
		Force: m.GetForce(),
		Label: readLabel(m),
	}
	if l := m.GetLapse(); len(l.GetIds()) > 0 {
		e.Lapse = l.read(l.GetIds()[0])
	}
	return e
}

// NewQuery returns q as a message, with the credit that its list begins with.
func NewQuery(q *lockkeeper.Query, credit uint32) *Query {
	return &Query{
		Meets:   string(q.Meets),
		Session: q.Session,
		Ref:     newRef(q.Ref),
		Follow:  q.Follow,
		Credit:  credit,
		Brief:   q.Brief,
		Stale:   q.Stale,
	}
}

// Read returns the value of m.
func (m *Query) Read() lockkeeper.Query {
	return lockkeeper.Query{
		Meets:   lockkeeper.Path(m.GetMeets()),
		Session: m.GetSession(),
		Ref:     m.GetRef().read(),
		Follow:  m.GetFollow(),
		Brief:   m.GetBrief(),
		Stale:   m.GetStale(),
	}
}
