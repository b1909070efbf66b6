package table

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Status returns the status of a claim, without the evidence of why it waits. It also knows claims
// that ended in the last step or less than a TTL ago. It returns false if the claim is unknown.
func (t *Table) Status(ref lockkeeper.Ref) (lockkeeper.Status, bool) {
	s := t.sessions[ref.Session]
	if s != nil {
		if c := s.claim(ref.ID); c != nil {
			return t.status(c), true
		}
	}
	if tomb := t.endedNow(ref); tomb != nil {
		return t.tombStatus(tomb), true
	}
	if s != nil {
		if tomb := t.remembered(s, ref.ID); tomb != nil {
			return t.tombStatus(tomb), true
		}
	}
	return lockkeeper.Status{}, false
}

// endedNow returns the tombstone of a claim that ended in this step; nil if it did not. It indexes
// many tombstones by claim, because a caller that reports the end of a session asks for each of
// them.
func (t *Table) endedNow(ref lockkeeper.Ref) *tombstone {
	if len(t.endedClaims) <= fewEnded {
		i := slices.IndexFunc(t.endedClaims, func(tomb *tombstone) bool {
			return tomb.id == ref.ID && tomb.session.id == ref.Session
		})
		if i < 0 {
			return nil
		}
		return t.endedClaims[i]
	}
	if t.endedByRef == nil {
		t.endedByRef = make(map[lockkeeper.Ref]*tombstone, len(t.endedClaims))
	}
	for _, tomb := range t.endedClaims[t.indexed:] {
		if t.endedByRef[tomb.ref()] == nil {
			t.endedByRef[tomb.ref()] = tomb
		}
	}
	t.indexed = len(t.endedClaims)
	return t.endedByRef[ref]
}

// fewEnded is the largest number of tombstones that endedNow searches without the index.
const fewEnded = 8

// Explain is Status with the evidence: position, estimate, reasons of the wait, and blockers.
func (t *Table) Explain(ref lockkeeper.Ref) (lockkeeper.Status, bool) {
	if s := t.sessions[ref.Session]; s != nil && s.claim(ref.ID) != nil {
		return t.explain(s.claim(ref.ID)), true
	}
	return t.Status(ref)
}

func (t *Table) explain(c *claim) lockkeeper.Status {
	st := t.status(c)
	if c.waits {
		st.Position, st.ETA, st.Waits, st.Blockers = t.positionOf(c), t.estimate(c), t.waits(c), t.blockers(c)
	}
	return st
}

// List yields the claims and freezes that q selects, with evidence unless q is brief: holds by
// fence, then waiting claims in the order of R4, then freezes by path. No step may run during the
// iteration.
func (t *Table) List(q lockkeeper.Query) iter.Seq[lockkeeper.Status] {
	return func(yield func(lockkeeper.Status) bool) {
		describe, find := t.explain, t.Explain
		if q.Brief {
			describe, find = t.status, t.Status
		}
		if q.Ref != (lockkeeper.Ref{}) {
			if st, ok := find(q.Ref); ok {
				yield(st)
			}
			return
		}
		for _, c := range t.inOrder(q) {
			if !yield(describe(c)) {
				return
			}
		}
		for _, f := range t.freezes.all {
			if (q.Session == "" || q.Session == f.by.Session) && meets(q.Meets, f.path) && !yield(t.freezeStatus(f)) {
				return
			}
		}
	}
}

func (t *Table) inOrder(q lockkeeper.Query) []*claim {
	var cs []*claim
	for _, s := range t.selected(q) {
		for _, c := range s.claims.all() {
			if c.meets(q.Meets) {
				cs = append(cs, c)
			}
		}
	}
	slices.SortFunc(cs, func(a, b *claim) int {
		switch {
		case a.waiting() && b.waiting():
			return a.compare(b)
		case a.waiting() != b.waiting():
			return cmp.Compare(b.fence, a.fence) // held claims have one, waiting ones have 0
		}
		return cmp.Compare(a.fence, b.fence)
	})
	return cs
}

// selected returns the sessions that may have claims that q selects, sorted by id.
func (t *Table) selected(q lockkeeper.Query) []*session {
	if q.Session == "" {
		return t.sessionsByID()
	}
	if s := t.sessions[q.Session]; s != nil {
		return []*session{s}
	}
	return nil
}

func (c *claim) meets(q lockkeeper.Path) bool {
	for target := range c.requested() {
		if meets(q, target.Path) {
			return true
		}
	}
	return false
}

func meets(q, p lockkeeper.Path) bool { return q == "" || q.Covers(p) || p.Covers(q) }

func (t *Table) sessionsByID() []*session {
	all := make([]*session, 0, len(t.sessions))
	for _, s := range t.sessions { // order does not matter: sorted below
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return strings.Compare(a.id, b.id) })
	return all
}

func (t *Table) status(c *claim) lockkeeper.Status {
	st := lockkeeper.Status{
		Ref: c.ref(), Inside: c.want.Inside, Change: c.change, Revision: c.want.Revision, State: lockkeeper.Waiting,
		Reason: c.undone, Text: c.text, Grants: c.grants(), Priority: c.want.Priority, Label: c.label.unpack(),
		Fence: c.fence, Unconfirmed: c.unsure, Converting: c.converting(), Ticket: c.ticket,
		Age: t.now - c.arrived, Left: left(c.bound(), t.now),
	}
	if c.holds {
		st.State, st.Age, st.Asked = lockkeeper.Held, t.now-c.granted, t.asked(c)
		st.Lapsed = c.lapse != nil
		end := c.earliestEnd()
		if c.want.Expected > 0 {
			end = min(end, c.granted+c.want.Expected)
		}
		st.Left = left(end, t.now)
	}
	return st
}

// left returns the time from now until at; 0 if at has passed.
func left(at, now time.Duration) time.Duration {
	if at == forever {
		return forever
	}
	return max(0, at-now)
}

// asked returns the demand on c with the earliest end: a revocation, its longest hold or an ask of
// a thief; nil if there is none.
func (t *Table) asked(c *claim) *lockkeeper.Asked {
	var most *lockkeeper.Asked
	var earliest time.Duration // the end of most: of two ends that have passed, Left is 0 for both
	press := func(a lockkeeper.Asked, end time.Duration) {
		if most != nil && end >= earliest {
			return
		}
		if a.Left = left(end, t.now); end != forever {
			a.EndsAt = end
		}
		most, earliest = &a, end
	}
	if c.operator != nil {
		press(lockkeeper.Asked{Label: c.operator.Label, Reason: lockkeeper.Revoked}, c.operator.end)
	}
	if c.overdue {
		press(lockkeeper.Asked{Reason: lockkeeper.Overdue}, c.granted+c.want.MaxHold+c.want.Grace)
	}
	for _, a := range c.asks {
		press(lockkeeper.Asked{By: a.by.ref(), Label: a.by.label.unpack(), Reason: lockkeeper.Stolen}, a.end)
	}
	return most
}

func (t *Table) tombStatus(tomb *tombstone) lockkeeper.Status {
	return lockkeeper.Status{
		Ref: tomb.ref(), Inside: tomb.want.Inside, Change: tomb.change, Revision: tomb.want.Revision, State: lockkeeper.Ended,
		Reason: tomb.reason, Text: tomb.text, Grants: tomb.grants(), Priority: tomb.want.Priority, Label: tomb.label.unpack(),
		Fence: tomb.fence, Age: t.now - tomb.at, Blockers: tomb.blockers, Position: tomb.position, ETA: tomb.eta,
	}
}

func (t *Table) freezeStatus(f *freeze) lockkeeper.Status {
	return lockkeeper.Status{
		Ref: f.by, State: lockkeeper.Freezing, Label: f.Label, Grants: freezeGrants(f),
		Age: t.now - f.since, Left: left(f.until, t.now),
	}
}

// lease returns the next lease of s, and records which ends it states (R12). It lists every claim
// that has an end, is asked to yield, or changed or ended within the last TTL; with all, every
// claim.
func (t *Table) lease(s *session, all bool) lockkeeper.Lease {
	l := lockkeeper.Lease{Key: lockkeeper.Key{Session: s.id, Epoch: s.epoch}}
	if s.ttl > 0 {
		l.TTL, l.EndsAt = s.deadline-t.now, s.deadline
	}
	s.promise = s.deadline
	s.leases++
	l.Number = s.leases
	for _, c := range s.byID() {
		t.recordStatedEnd(c, s.leases)
		if all || c.stated != forever || len(c.asks) > 0 || c.overdue || t.now-c.changedAt() <= s.ttl {
			l.Claims = append(l.Claims, t.status(c))
		}
	}
	s.endings.each(s, t.now, func(tomb *tombstone) { l.Claims = append(l.Claims, t.tombStatus(tomb)) })
	return l
}

// Freeze returns the status of the freeze of exactly this path; false if there is none.
func (t *Table) Freeze(path lockkeeper.Path) (lockkeeper.Status, bool) {
	if f := t.freezes.on(path); f != nil {
		return t.freezeStatus(f), true
	}
	return lockkeeper.Status{}, false
}

// Due returns the next instant at which time alone changes a claim: its wait or its hold ends, or
// it becomes overdue; false if there is none. Its session may end before.
func (t *Table) Due(ref lockkeeper.Ref) (time.Duration, bool) {
	c := t.find(ref)
	if c == nil || c.due == nil || c.due.index == 0 {
		return 0, false
	}
	return c.due.at, true
}
