package table

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Limits of one table. It refuses requests that would exceed them.
const (
	MaxSessions = 1 << 20
	MaxClaims   = 1 << 24 // of one session
	MaxFreezes  = 1 << 10
)

// attach opens the session want.ID, or takes it over from the epoch want.Epoch (R19).
func (t *Table) attach(want *lockkeeper.Session) error {
	if err := want.Check(true); err != nil {
		return err
	}
	s := t.sessions[want.ID]
	if s != nil && s.epoch != want.Epoch {
		return wrongEpoch(s, want.Epoch)
	}
	if s == nil {
		if len(t.sessions) >= MaxSessions {
			return quota("sessions", MaxSessions)
		}
		s = &session{id: want.ID}
		s.due.session, s.resumed = s, true
		t.sessions[want.ID] = s
	}
	s.lowestOpen = 0
	released := make([]lockkeeper.Reason, len(want.Lapsed)) // by the asks before any of them ends
	for i := range want.Lapsed {
		if c := s.claim(want.Lapsed[i].ID); c != nil {
			released[i] = t.releaseReason(c)
		}
	}
	for i := range want.Lapsed {
		t.lapseClaim(s.claim(want.Lapsed[i].ID), &want.Lapsed[i], released[i])
	}
	t.setResumed(s, true)
	s.ttl = want.TTL
	named := lookup(want.Named)
	for _, c := range s.byID() {
		if c.lapse == nil && !named(c.id) {
			t.endClaim(c, lockkeeper.Superseded, "")
		}
	}
	t.acknowledgeEnds(s.id, func(id uint64) bool { return !named(id) })
	t.epochs++
	s.label, s.epoch = want.Label, t.epochs
	t.extend(s)
	t.forget(s)
	t.resume(s)
	t.settle()
	t.reply.Lease = t.lease(s, true)
	return nil
}

// DropUnknown returns want without duplicates and without claims that the table does not have in
// Named and Lapsed. [Attach] ignores both, and a client may list any number of them.
func (t *Table) DropUnknown(want lockkeeper.Session) lockkeeper.Session {
	if len(want.Named)+len(want.Lapsed) == 0 {
		return want
	}
	s, unacked := t.sessions[want.ID], t.unacked.bySession[want.ID]
	claims := make(map[uint64]bool) // false: it is not listed yet
	if s != nil {
		for id := range s.claims.all() {
			claims[id] = false
		}
	}
	for id := range unacked { // order does not matter: all of them
		claims[id] = false
	}
	first := func(id uint64) bool {
		listed, there := claims[id]
		if there {
			claims[id] = true
		}
		return there && !listed
	}
	all := want
	want.Named, want.Lapsed = nil, nil
	for i := range all.Lapsed {
		if first(all.Lapsed[i].ID) {
			want.Lapsed = append(want.Lapsed, all.Lapsed[i])
		}
	}
	for id := range claims { // order does not matter: all of them
		claims[id] = false
	}
	for _, id := range all.Named {
		if first(id) {
			want.Named = append(want.Named, id)
		}
	}
	return want
}

// lookup returns a function that reports in constant time whether an id is in ids.
func lookup(ids []uint64) func(id uint64) bool {
	const few = 16
	if len(ids) <= few {
		return func(id uint64) bool { return slices.Contains(ids, id) }
	}
	set := make(map[uint64]struct{}, len(ids))
	for _, id := range ids {
		set[id] = struct{}{}
	}
	return func(id uint64) bool { _, there := set[id]; return there }
}

// wrongEpoch returns the error for an attach whose epoch, follows, is not that of the session.
func wrongEpoch(s *session, follows uint64) error {
	why := fmt.Sprintf("session %s is open under epoch %d, and this attach follows ", s.id, s.epoch)
	if follows == 0 {
		why += "none: to take it over, attach with that epoch"
	} else {
		why += fmt.Sprintf("epoch %d: another attach came first, or this one comes late; to take it over, attach with the "+
			"present epoch", follows)
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrSession, Epoch: s.epoch, Detail: why}
}

func quota(what string, most int) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Reason: lockkeeper.Quota,
		Detail: fmt.Sprintf("%d %s are the most that are allowed", most, what),
	}
}

// extend gives s its whole TTL again. It never moves the deadline back.
func (t *Table) extend(s *session) {
	switch {
	case s.ttl == 0:
		s.deadline = forever
	case s.deadline == forever:
		s.deadline = t.now + s.ttl
	default:
		s.deadline = max(s.deadline, t.now+s.ttl)
	}
	t.schedule.set(&s.due, s.deadline)
	t.markSession(s)
}

// resume marks the waits of s for a recheck, because they may be granted now.
func (t *Table) resume(s *session) {
	for _, c := range s.byID() {
		if c.waits {
			t.arrivals = append(t.arrivals, c)
			if c.isThief {
				t.staleThieves = append(t.staleThieves, c)
			}
		}
	}
}

// renew gives s its whole TTL again, and states the ends of its claims (R12).
func (t *Table) renew(s *session) {
	t.extend(s)
	t.reply.Lease = t.lease(s, false)
}

// restart requires every session to resume (R19). The engine no longer knows its last answers, so
// each holder may rely on the latest end that an answer can have stated. It does not extend a
// session that has not resumed since the previous restart: no answer has promised that session
// more.
func (t *Table) restart() {
	for _, s := range t.sessionsByID() {
		if s.resumed {
			t.setResumed(s, false)
			t.extend(s)
		}
		s.promise = max(s.promise, s.deadline)
		for _, c := range s.byID() {
			if c.stated != forever || c.unackedEnd != forever {
				own := c.own()
				own.stated, own.statedIn, own.unackedEnd = forever, 0, forever
				t.mark(c)
			}
			if c.isThief {
				t.staleThieves = append(t.staleThieves, c)
			}
		}
	}
	t.settle()
}

// setResumed sets s.resumed, and counts the sessions with a TTL that have to resume.
func (t *Table) setResumed(s *session, resumed bool) {
	if s.ttl > 0 && s.resumed != resumed {
		if resumed {
			t.resuming--
		} else {
			t.resuming++
		}
	}
	s.resumed = resumed
}

// claim makes or amends the claim w.ID of s, or answers again for one that exists (R16).
func (t *Table) claim(s *session, w *lockkeeper.Want) error {
	if err := w.Check(); err != nil {
		return err
	}
	if missing := w.Features() &^ lockkeeper.TableFeatures; missing != 0 {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: "this engine does not support: " + missing.String() +
			"; state a time or a part of the holder's TTL"}
	}
	if c := s.claim(w.ID); c != nil {
		if err := t.amend(c, w); err != nil {
			return err
		}
		t.replyStatus(c)
		return nil
	}
	if tomb := t.remembered(s, w.ID); tomb != nil {
		t.reply.Status = t.tombStatus(tomb)
		return nil
	}
	if f := t.freezeBy(lockkeeper.Ref{Session: s.id, ID: w.ID}); f != nil {
		t.reply.Status = t.freezeStatus(f)
		return nil
	}
	if w.ID < s.lowestOpen {
		return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: fmt.Sprintf(
			"claim %d of session %s is over and forgotten: the session said that it begins none below %d", w.ID, s.id,
			s.lowestOpen)}
	}
	if w.Freeze > 0 {
		return t.claimFreeze(s, w)
	}
	if s.claims.length >= MaxClaims {
		return quota("claims of one session", MaxClaims)
	}
	t.arrive(s, w)
	return nil
}

// arrive makes a new claim, and grants it, queues it or refuses it.
func (t *Table) arrive(s *session, w *lockkeeper.Want) {
	t.tickets++
	c := t.newClaim()
	c.id, c.want, c.label, c.ticket, c.arrived = w.ID, s.termsOf(w), s.labelOf(&w.Label), t.tickets, t.now
	c.setPermits(w.Targets)
	s.claims.put(w.ID, c)
	t.nest(c)
	t.markThievesInside(c.ref())
	c.setEntries(t.entries(c, w.Targets, c.one[:0]))
	c.waits = true
	t.beginWait(c)
	if c.ended() {
		t.tomb(c).acked = true // by this answer
	}
	t.replyStatus(c)
}

// beginWait starts c's wait for its wanted entries. It may grant or refuse c at once.
func (t *Table) beginWait(c *claim) {
	switch {
	case t.forbidden(c) == nil && t.grantable(c):
		t.grant(c)
	case c.want.Wait == 0:
		t.addIntents(c)
		t.giveUp(c, lockkeeper.TimedOut, "")
	default:
		t.addIntents(c)
		if c.want.Wait != forever {
			t.setBound(c, t.now+c.want.Wait)
		}
		t.recordChange(c, Queued, lockkeeper.NoReason)
		t.startWaiting(c)
		t.maybeHopeless = append(t.maybeHopeless, c)
		t.reschedule(c)
	}
	t.settle()
}

// replyStatus sets the reply to a claim command. The status of a refused claim includes its
// blockers; for a waiting claim, Explain and List compute them on request.
func (t *Table) replyStatus(c *claim) {
	t.recordStatedEnd(c, 0)
	t.mark(c)
	if c.ended() {
		t.reply.Status = t.tombStatus(t.tomb(c))
	} else {
		t.reply.Status = t.status(c)
	}
}

// claimFreeze makes a freeze of each target of w (R18). Freezes outlive their session. A repeated
// command changes nothing.
func (t *Table) claimFreeze(s *session, w *lockkeeper.Want) error {
	ref := lockkeeper.Ref{Session: s.id, ID: w.ID}
	if len(t.freezes.all)+len(w.Targets) > MaxFreezes {
		return quota("freezes", MaxFreezes)
	}
	for _, target := range w.Targets {
		t.beginFreeze(&freeze{path: target.Path, by: ref, Label: w.Label, since: t.now, until: t.now + w.Freeze})
	}
	t.settle()
	t.reply.Status = t.freezeStatus(t.freezeBy(ref))
	return nil
}

// freezeBy returns the first freeze by ref in the order of paths; nil if there is none.
func (t *Table) freezeBy(ref lockkeeper.Ref) *freeze {
	if t.freezes.by[ref] == 0 {
		return nil
	}
	for _, f := range t.freezes.all {
		if f.by == ref {
			return f
		}
	}
	return nil
}

// end applies e for session s.
func (t *Table) end(s *session, e *lockkeeper.Ending) error {
	if err := e.Check(); err != nil {
		return err
	}
	switch e.Kind {
	case lockkeeper.Leave:
		t.endSession(s, lockkeeper.Released, lockkeeper.Cancelled)
		t.settle()
		return nil
	case lockkeeper.Revoke:
		return t.revoke(e)
	case lockkeeper.Thaw:
		if f := t.freezes.on(e.Path); f != nil {
			t.thaw(f, lockkeeper.Released)
			t.settle()
			return nil
		}
		return &lockkeeper.Error{
			Err:    lockkeeper.ErrNotHeld,
			Path:   e.Path,
			Detail: "it is not frozen; name a path as the list of freezes has it",
		}
	}
	id := e.ID
	if e.Kind == lockkeeper.Lapsed {
		id = e.Lapse.ID
	}
	c := s.claim(id)
	switch {
	case c == nil:
		return t.endedBefore(s, id)
	case e.Kind == lockkeeper.Lapsed:
		t.lapseClaim(c, &e.Lapse, t.releaseReason(c))
	case c.waiting():
		t.endClaim(c, lockkeeper.Cancelled, "")
	case c.lapse == nil: // otherwise its end is fixed
		t.endClaim(c, t.releaseReason(c), "")
	}
	t.settle()
	return nil
}

// endedBefore answers an End for a claim that s does not have. It returns nil if the claim has
// ended, and records that its holder knows of the end.
func (t *Table) endedBefore(s *session, id uint64) error {
	acked := t.acknowledgeEnds(s.id, func(unacked uint64) bool { return unacked == id })
	if acked || t.remembered(s, id) != nil || 0 < id && id < s.lowestOpen {
		return nil
	}
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrNotHeld,
		Detail: "session " + s.id + " has no such claim; nothing was changed",
	}
}

// revoke ends another session's claim for an operator (R18).
func (t *Table) revoke(e *lockkeeper.Ending) error {
	s := t.sessions[e.Ref.Session]
	if s == nil || s.claim(e.Ref.ID) == nil {
		if s != nil && t.remembered(s, e.Ref.ID) != nil {
			return nil
		}
		return &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: "there is no claim " + e.Ref.String()}
	}
	c := s.claim(e.Ref.ID)
	ttl := s.ttl
	if ttl == 0 {
		ttl = lockkeeper.DefaultTTL
	}
	switch {
	case c.waiting():
		t.endClaim(c, lockkeeper.Revoked, words(e.Label))
	case e.Force:
		t.endForced(c, lockkeeper.Revoked, e.Label)
	case c.operator == nil || t.now+ttl < c.operator.end:
		c.own().operator = &operatorAsk{Label: e.Label, end: t.now + ttl}
		t.recordChange(c, AskChanged, lockkeeper.NoReason)
		t.reschedule(c)
	}
	t.settle()
	return nil
}
