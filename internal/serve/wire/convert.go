package wire

import (
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// endless is a duration without end, as it crosses the wire.
const endless = -1

func sendDuration(d time.Duration) int64 {
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

// narrow reads the number of an enumeration. What is none becomes the highest
// number, which means nothing in any of them, so that the door refuses it.
func narrow[To ~uint8, From ~int32](n From) To {
	if n < 0 || n > math.MaxUint8 {
		return math.MaxUint8
	}
	return To(n)
}

// readInt reads a number; one that an int can't hold becomes the nearest that it
// can, which is beyond every bound of package lockkeeper.
func readInt(n int64) int { return int(min(max(n, math.MinInt), math.MaxInt)) }

func sendRef(r lockkeeper.Ref) *Ref {
	if r == (lockkeeper.Ref{}) {
		return nil
	}
	return &Ref{Session: r.Session, Id: r.ID}
}

func (r *Ref) read() lockkeeper.Ref { return lockkeeper.Ref{Session: r.GetSession(), ID: r.GetId()} }

// labelled is every message that carries a label.
type labelled interface {
	GetAs() string
	GetNote() string
	GetLink() string
}

func readLabel(m labelled) lockkeeper.Label {
	return lockkeeper.Label{As: m.GetAs(), Note: m.GetNote(), Link: m.GetLink()}
}

// SendSession makes a message of s.
func SendSession(s *lockkeeper.Session) *Attach {
	return &Attach{
		Session: s.ID, Ttl: sendDuration(s.TTL), Named: s.Named, Lapsed: sendLapses(s.Lapsed),
		Outlive: s.Outlive, Epoch: s.Epoch,
		As: s.As, Note: s.Note, Link: s.Link,
	}
}

// sendLapses makes one message of those that follow each other and differ in their
// claims alone: when a session ends they all do.
func sendLapses(all []lockkeeper.Lapse) (ms []*Lapse) {
	for i, l := range all {
		if i == 0 || l.Reason != all[i-1].Reason || l.EndsAt != all[i-1].EndsAt {
			ms = append(ms, &Lapse{Reason: Reason(l.Reason), EndsAt: sendDuration(l.EndsAt)})
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

// read returns the lapse of one of m's claims.
func (m *Lapse) read(id uint64) lockkeeper.Lapse {
	return lockkeeper.Lapse{ID: id, Reason: narrow[lockkeeper.Reason](m.GetReason()), EndsAt: readDuration(m.GetEndsAt())}
}

// Read is the session that a asks for; it shares a's list of claims.
func (a *Attach) Read() lockkeeper.Session {
	return lockkeeper.Session{
		ID: a.GetSession(), TTL: readDuration(a.GetTtl()), Named: a.GetNamed(), Lapsed: readLapses(a.GetLapsed()),
		Outlive: a.GetOutlive(),
		Epoch:   a.GetEpoch(), Label: readLabel(a),
	}
}

// SendLease makes a message of the lease, but of its claims only the first, as many
// as one message should carry; what is left of l has the others.
func SendLease(l *lockkeeper.Lease) (m *Lease, left lockkeeper.Lease) {
	left = *l
	m = &Lease{Epoch: l.Key.Epoch, Ttl: sendDuration(l.TTL), Number: l.Number, EndsAt: sendDuration(l.EndsAt)}
	for size := 0; len(left.Claims) > 0 && size < leaseBytes; left.Claims = left.Claims[1:] {
		claim := SendStatus(&left.Claims[0], l.Key.Session)
		size += claim.SizeVT()
		m.Claims = append(m.Claims, claim)
	}
	return m, left
}

// leaseBytes is about how large one message of a large lease is.
const leaseBytes = 64 << 10

// Read is the lease of a session that l carries.
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

func sendTarget(t lockkeeper.Target) *Target {
	return &Target{Path: string(t.Path), Mode: Mode(t.Mode), Units: int64(t.Units), Limit: int64(t.Limit)}
}

// targeted is every message that carries a target.
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

// SendWant makes a message of w.
func SendWant(w *lockkeeper.Want) *Claim {
	m := &Claim{
		Id: w.ID, Revision: w.Revision, Inside: sendRef(w.Inside), Priority: int64(w.Priority),
		Wait: sendDuration(w.Wait), Manners: Manners(w.WriterPolicy), Quiet: sendDuration(w.Quiet),
		Steal: Steal(w.Steal), After: sendDuration(w.After), MaxHold: sendDuration(w.MaxHold),
		Grace: sendDuration(w.Grace), Lasts: sendDuration(w.Expected), Freeze: sendDuration(w.Freeze),
		As: w.As, Note: w.Note, Link: w.Link,
	}
	m.Targets = make([]*Target, len(w.Targets))
	for i, t := range w.Targets {
		m.Targets[i] = sendTarget(t)
	}
	return m
}

// Read is the want that c carries.
func (c *Claim) Read() lockkeeper.Want {
	w := lockkeeper.Want{
		ID: c.GetId(), Revision: c.GetRevision(), Inside: c.GetInside().read(), Priority: readInt(c.GetPriority()),
		Wait:         readDuration(c.GetWait()),
		WriterPolicy: narrow[lockkeeper.WriterPolicy](c.GetManners()),
		Quiet:        readDuration(c.GetQuiet()),
		Steal:        narrow[lockkeeper.Steal](c.GetSteal()),
		After:        readDuration(c.GetAfter()),
		MaxHold:      readDuration(c.GetMaxHold()),
		Grace:        readDuration(c.GetGrace()),
		Expected:     readDuration(c.GetLasts()),
		Freeze:       readDuration(c.GetFreeze()),
		Label:        readLabel(c),
	}
	w.Targets = make([]lockkeeper.Target, len(c.GetTargets()))
	for i, t := range c.GetTargets() {
		w.Targets[i] = readTarget(t)
	}
	return w
}

// SendEnding makes a message of e.
func SendEnding(e *lockkeeper.Ending) *End {
	m := &End{
		Kind: EndKind(e.Kind), Id: e.ID, Ref: sendRef(e.Ref), Path: string(e.Path), Force: e.Force,
		As: e.As, Note: e.Note, Link: e.Link,
	}
	if e.Lapse != (lockkeeper.Lapse{}) {
		m.Lapse = sendLapses([]lockkeeper.Lapse{e.Lapse})[0]
	}
	return m
}

// Read is the ending that e carries.
func (e *End) Read() lockkeeper.Ending {
	ending := lockkeeper.Ending{
		Kind: narrow[lockkeeper.EndingKind](e.GetKind()), ID: e.GetId(), Ref: e.GetRef().read(),
		Path: lockkeeper.Path(e.GetPath()), Force: e.GetForce(), Label: readLabel(e),
	}
	if m := e.GetLapse(); len(m.GetIds()) > 0 {
		ending.Lapse = m.read(m.GetIds()[0])
	}
	return ending
}

// SendQuery makes a message of q.
func SendQuery(q *lockkeeper.Query, credit uint32) *List {
	return &List{
		Meets: string(q.Meets), Session: q.Session, Ref: sendRef(q.Ref), Follow: q.Follow, Credit: credit,
		Brief: q.Brief, Stale: q.Stale,
	}
}

// Read is the query that l carries.
func (l *List) Read() lockkeeper.Query {
	return lockkeeper.Query{
		Meets: lockkeeper.Path(l.GetMeets()), Session: l.GetSession(), Ref: l.GetRef().read(), Follow: l.GetFollow(),
		Brief: l.GetBrief(), Stale: l.GetStale(),
	}
}
