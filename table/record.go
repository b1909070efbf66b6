package table

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Snapshot is a table, or the changed part of one, as plain records in a fixed order: sessions by
// id, claims by ref, freezes and hold times by path. Changes may list a session twice: as closed,
// and then as opened again.
type Snapshot struct {
	Counters  Counters
	Sessions  []SessionRecord
	Claims    []ClaimRecord
	Freezes   []FreezeRecord
	HoldTimes []HoldTimeRecord
}

// Counters are the numbers of a table that never decrease.
type Counters struct {
	Now     time.Duration // R20
	Fences  uint64        // the last given (R13)
	Tickets uint64        // the last drawn (R4)
	Epochs  uint64        // the last given (R19)
	Changes uint64        // the last Status.Change given
}

// SessionRecord is one session. Times are instants of the table.
type SessionRecord struct {
	ID         string
	Label      lockkeeper.Label
	TTL        time.Duration
	Epoch      uint64
	Deadline   time.Duration // lockkeeper.Forever for TTL 0
	Promise    time.Duration
	Resumed    bool
	Leases     uint64 // the number of the latest lease
	Acked      uint64 // the latest lease that it acknowledged (R12)
	LowestOpen uint64 // its client starts no claim with an id below this (R16)
	Closed     bool   // in changes: the session ended
}

// ClaimRecord is one claim: waiting, held, or ended and not yet forgotten.
type ClaimRecord struct {
	Ref          lockkeeper.Ref
	Want         lockkeeper.Want // as last accepted
	State        lockkeeper.State
	Converting   bool // held with the modes in Grants, waits for those in Want
	Grants       []lockkeeper.Grant
	Ticket       uint64
	Fence        uint64
	Change       uint64
	Changed      time.Duration
	Arrived      time.Duration
	Granted      time.Duration
	Bound        time.Duration // of the wait; lockkeeper.Forever if it has none
	Quiet        time.Duration // start of the quiet period
	StatedEnd    time.Duration // end in the latest answer to its session; lockkeeper.Forever if none
	StatedIn     uint64        // number of the first lease that stated StatedEnd; 0 if none did (R12)
	UnackedEnd   time.Duration // the latest end stated since the last acknowledged lease; 0: StatedEnd
	Unconfirmed  bool
	Overdue      bool
	Asks         []AskRecord
	Operator     *OperatorRecord
	Lapse        *LapseRecord
	Reason       lockkeeper.Reason // why it ended, or why the table undid its latest conversion
	Text         string
	Thawed       bool          // ended: it was not a claim but a freeze
	Acked        bool          // ended: its session knows of the end (R16)
	Ended        time.Duration // ended: when
	Forget       time.Duration // ended: when the table forgets it
	UnackedUntil time.Duration // ended: until then its holder may not know of the end; 0: it knows
}

// AskRecord is one live request to yield; By is the claim that asks.
type AskRecord struct {
	By  lockkeeper.Ref
	End time.Duration // lockkeeper.Forever if it only asks
}

// OperatorRecord is a revocation that waits for its end.
type OperatorRecord struct {
	lockkeeper.Label
	End time.Duration
}

// LapseRecord is the end of a lapsed hold.
type LapseRecord struct {
	End    time.Duration
	Reason lockkeeper.Reason
	Text   string
}

// FreezeRecord is one freeze.
type FreezeRecord struct {
	Path  lockkeeper.Path
	By    lockkeeper.Ref
	Label lockkeeper.Label
	Since time.Duration
	Until time.Duration
	Ended bool // in changes: the freeze ended
}

// HoldTimeRecord is the estimate of how long holds of one path last (R17).
type HoldTimeRecord struct {
	Path      lockkeeper.Path
	Estimate  time.Duration
	At        time.Duration // end of the latest hold that the estimate includes
	Forgotten bool          // in changes: the table forgot the estimate
}

// changeLog records which parts of the table changed since the last call of Changes.
type changeLog struct {
	claims    map[lockkeeper.Ref]bool
	ended     []*tombstone
	sessions  map[string]bool // true: the session ended, and may be open again
	freezes   map[lockkeeper.Path]bool
	holdTimes map[lockkeeper.Path]bool
}

// Track makes the table record its changes from now on, for [Table.Changes].
func (t *Table) Track() {
	t.tracking = true
	t.dirty = changeLog{
		claims: map[lockkeeper.Ref]bool{}, sessions: map[string]bool{},
		freezes: map[lockkeeper.Path]bool{}, holdTimes: map[lockkeeper.Path]bool{},
	}
}

func (t *Table) mark(c *claim) {
	if t.tracking {
		t.dirty.claims[c.ref()] = true
	}
}

func (t *Table) markEnded(tomb *tombstone) {
	if t.tracking {
		tomb.kept = true
		t.dirty.ended = append(t.dirty.ended, tomb)
	}
}

func (t *Table) markSession(s *session) {
	if t.tracking {
		closed := t.dirty.sessions[s.id]
		t.dirty.sessions[s.id] = closed
	}
}

func (t *Table) markClosed(s *session) {
	if t.tracking {
		t.dirty.sessions[s.id] = true
	}
}

func (t *Table) markFreeze(f *freeze) {
	if t.tracking {
		t.dirty.freezes[f.path] = true
	}
}

func (t *Table) markHoldTime(path lockkeeper.Path) {
	if t.tracking {
		t.dirty.holdTimes[path] = true
	}
}

// Changes returns the changes since Track or the last call, as records with their new contents. If
// the caller loads them into a copy of the earlier table, the copy becomes equal to t.
func (t *Table) Changes() Snapshot {
	d := t.dirty
	t.Track()
	snap := Snapshot{Counters: t.Counters()}
	for id, closed := range d.sessions { // order does not matter: sorted below
		if closed {
			snap.Sessions = append(snap.Sessions, SessionRecord{ID: id, Closed: true})
		}
		if s := t.sessions[id]; s != nil {
			snap.Sessions = append(snap.Sessions, s.record())
		}
	}
	snap.Claims = make([]ClaimRecord, 0, len(d.claims)+len(d.ended))
	for ref := range d.claims { // order does not matter: sorted below
		if s := t.sessions[ref.Session]; s != nil && s.claim(ref.ID) != nil {
			snap.Claims = append(snap.Claims, s.claim(ref.ID).record())
		}
	}
	slices.SortStableFunc(d.ended, func(a, b *tombstone) int { return compareRefs(a.ref(), b.ref()) })
	for _, tomb := range slices.Compact(d.ended) {
		snap.Claims = append(snap.Claims, tomb.record())
	}
	for path := range d.freezes { // order does not matter: sorted below
		record := FreezeRecord{Path: path, Ended: true}
		if f := t.freezes.on(path); f != nil {
			record = f.record()
		}
		snap.Freezes = append(snap.Freezes, record)
	}
	for path := range d.holdTimes { // order does not matter: sorted below
		record := HoldTimeRecord{Path: path, Forgotten: true}
		if p := t.holdTimes.of[path]; p != nil {
			record = p.record()
		}
		snap.HoldTimes = append(snap.HoldTimes, record)
	}
	snap.sort()
	return snap
}

// Snapshot returns records of the whole table. [Restore] makes an equal table from them.
func (t *Table) Snapshot() Snapshot {
	snap := Snapshot{Counters: t.Counters()}
	for _, s := range t.sessionsByID() {
		snap.Sessions = append(snap.Sessions, s.record())
		for _, c := range s.byID() {
			snap.Claims = append(snap.Claims, c.record())
		}
		s.endings.each(s, t.now, func(tomb *tombstone) { snap.Claims = append(snap.Claims, tomb.record()) })
	}
	for _, tombs := range t.unacked.bySession { // order does not matter: sorted below
		for _, g := range tombs { // order does not matter: sorted below
			if g.unackedUntil > t.now && (!g.remembered || g.forget <= t.now) {
				snap.Claims = append(snap.Claims, g.record())
			}
		}
	}
	for _, f := range t.freezes.all {
		snap.Freezes = append(snap.Freezes, f.record())
	}
	for _, p := range t.holdTimes.of { // order does not matter: sorted below
		snap.HoldTimes = append(snap.HoldTimes, p.record())
	}
	snap.sort()
	return snap
}

func (snap *Snapshot) sort() {
	slices.SortStableFunc(snap.Sessions, func(a, b SessionRecord) int { return strings.Compare(a.ID, b.ID) })
	slices.SortStableFunc(snap.Claims, func(a, b ClaimRecord) int {
		return cmp.Or(compareRefs(a.Ref, b.Ref), cmp.Compare(a.Change, b.Change))
	})
	slices.SortFunc(snap.Freezes, func(a, b FreezeRecord) int { return strings.Compare(string(a.Path), string(b.Path)) })
	slices.SortFunc(snap.HoldTimes, func(a, b HoldTimeRecord) int {
		return strings.Compare(string(a.Path), string(b.Path))
	})
}

// Counters returns t's counters after the latest step.
func (t *Table) Counters() Counters {
	return Counters{Now: t.now, Fences: t.fences, Tickets: t.tickets, Epochs: t.epochs, Changes: t.changes}
}

func (s *session) record() SessionRecord {
	return SessionRecord{
		ID: s.id, Label: s.label, TTL: s.ttl, Epoch: s.epoch, Deadline: s.deadline, Promise: s.promise, Resumed: s.resumed,
		Leases: s.leases, Acked: s.acked, LowestOpen: s.lowestOpen,
	}
}

func (c *claim) record() ClaimRecord {
	r := ClaimRecord{
		Ref: c.ref(), Want: c.request(), State: lockkeeper.Waiting, Converting: c.converting(), Grants: c.grants(),
		Ticket: c.ticket, Fence: c.fence, Change: c.change, Changed: c.changedAt(), Arrived: c.arrived, Granted: c.granted,
		Bound:       c.bound(),
		Quiet:       c.quiet(),
		StatedEnd:   c.stated,
		StatedIn:    c.statedIn,
		Unconfirmed: c.unsure,
		Overdue:     c.overdue,
		Reason:      c.undone,
		Text:        c.text,
	}
	if c.unackedEnd != c.stated {
		r.UnackedEnd = c.unackedEnd
	}
	if c.holds {
		r.State = lockkeeper.Held
	}
	for _, a := range c.asks {
		r.Asks = append(r.Asks, AskRecord{By: a.by.ref(), End: a.end})
	}
	if c.operator != nil {
		r.Operator = &OperatorRecord{Label: c.operator.Label, End: c.operator.end}
	}
	if c.lapse != nil {
		r.Lapse = &LapseRecord{End: c.lapse.end, Reason: c.lapse.reason, Text: c.lapse.text}
	}
	return r
}

func (tomb *tombstone) record() ClaimRecord {
	return ClaimRecord{
		Ref: tomb.ref(), State: lockkeeper.Ended, Grants: tomb.grants(), Fence: tomb.fence, Change: tomb.change,
		Want: lockkeeper.Want{
			ID: tomb.id, Revision: tomb.want.Revision, Inside: tomb.want.Inside, Priority: tomb.want.Priority,
			Label: tomb.label.unpack(),
		},
		Thawed:       tomb.thawed,
		Acked:        tomb.acked,
		Reason:       tomb.reason,
		Text:         tomb.text,
		Ended:        tomb.at,
		Forget:       tomb.forget,
		UnackedUntil: tomb.unackedUntil,
	}
}

func (p *holdTime) record() HoldTimeRecord {
	return HoldTimeRecord{Path: p.path, Estimate: p.estimate, At: p.at}
}

func (f *freeze) record() FreezeRecord {
	return FreezeRecord{Path: f.path, By: f.by, Label: f.Label, Since: f.since, Until: f.until}
}
