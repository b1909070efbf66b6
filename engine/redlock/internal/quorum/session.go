package quorum

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A session is one that this party attached, under one epoch.
type session struct {
	id         string
	epoch      uint64
	ttl        time.Duration
	label      lockkeeper.Label
	over       bool
	lowestOpen uint64
	seats      []seat
	claims     map[uint64]*claim
	live       int      // claims that have not ended
	graves     []*claim // ended claims, the earliest first

	clientEnd time.Duration // the deadline that the client knows: it stops using all holds by then
	lease     uint64        // number of the latest lease
	acked     uint64        // number of the latest lease that the client has processed
	left      bool          // the client has left it
	states    bool          // the client states which leases it has processed
	acks      bool          // acknowledgements may have to be sent
	renewals  []CallID      // Renew and Attach without an answer
	patience  time.Duration // until when renewals wait for servers that would make the lease longer
	retryAt   time.Duration
	opened    time.Duration // when its Attach had a majority
	timer     timer
}

// A seat is a session at one server.
type seat struct {
	promise     time.Duration
	renewedFrom time.Duration // when the latest request was sent that the server answered with a promise
	joined      bool          // it has the session under this epoch
	absent      bool          // it has no such session: Restore is next
	absentAt    time.Duration // when the party learned that
	other       uint64        // it has the session under this newer epoch
	attached    uint64        // it has the session under this epoch of an attempt of this party
	voided      bool          // its votes were void once: messages do not count there any more
	since       uint64        // replies to requests with lower numbers do not count

	renew                       bool          // a Renew is wanted
	attaching                   bool          // the Attach that made the session is on its way
	renewing, restoring, acking bool          // on their way
	restored                    time.Duration // when the latest Restore was sent
}

func (p *Party) newSession(id string) *session {
	s := &session{
		id: id, seats: make([]seat, p.n), claims: make(map[uint64]*claim), retryAt: never, patience: never,
	}
	s.timer = timer{session: s, order: p.base.created()}
	return s
}

// inOrder returns the claims of s by id.
func (s *session) inOrder() []*claim {
	all := make([]*claim, 0, len(s.claims))
	for _, c := range s.claims { // order does not matter: sorted below
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *claim) int { return cmp.Compare(a.id, b.id) })
	return all
}

// find returns the session that k is the key of, or the refusal.
func (p *Party) find(now time.Duration, k lockkeeper.Key) (*session, error) {
	s := p.sessions[k.Session]
	if s == nil || s.epoch != k.Epoch {
		return nil, errSession
	}
	if now >= s.limit() {
		p.expire(s, now)
		return nil, errSession
	}
	if k.LowestOpen > s.lowestOpen {
		s.lowestOpen = k.LowestOpen
		s.forgetAnswered()
	}
	p.acknowledge(s, k.Acked)
	return s, nil
}

var errSession = &lockkeeper.Error{Err: lockkeeper.ErrSession}

// usable reports whether requests of s to a server can be executed there.
func (p *Party) usable(s *session, server int) bool {
	seat := &s.seats[server]
	return p.up[server] && !seat.absent && seat.other == 0 && !p.ahead(s, server)
}

// ahead reports whether a server has accepted an attempt of this party. It refuses requests under the present
// epoch. When the attempt has a majority, they are sent under its epoch.
func (p *Party) ahead(s *session, server int) bool {
	return s.seats[server].attached > s.epoch && p.attaching(s.id, s.seats[server].attached)
}

// sessionReply takes the reply to a request of a session.
func (p *Party) sessionReply(f flight, number uint64, sent time.Duration, r Reply, now time.Duration) {
	s, i := f.session, f.server
	seat := &s.seats[i]
	switch f.kind {
	case Renew:
		seat.renewing = false
	case Restore:
		seat.restoring = false
	case Ack:
		seat.acking = false
	}
	if s.over {
		if s.left && f.kind == Restore && r.Outcome == Done { // it arrived after the departure
			p.launch(flight{server: i, kind: Leave}, Request{Kind: Leave, Session: s.id, Epoch: s.epoch})
		}
		return
	}
	if c := f.claim; c != nil {
		c.at[i].landed(f.kind)
		if r.Outcome == Full {
			c.at[i].full = now + fullPause
		}
		p.endExecuted(c, i, f.kind, &r)
	}
	all := number >= seat.since && p.takeReply(f, number, sent, r, now)
	if p.superseded(s, now) {
		p.supersede(s, now)
		return
	}
	p.decideAfter(s, f.claim, r.Claims, all, now)
	p.afterReply(s, now)
}

// decideAfter decides the claims that a reply was about, or all.
func (p *Party) decideAfter(s *session, own *claim, states []ClaimState, all bool, now time.Duration) {
	if all {
		for _, c := range s.inOrder() {
			p.decide(c, now)
		}
		return
	}
	for k := range states {
		if c := s.claims[states[k].ID]; c != nil && c != own {
			p.decide(c, now)
		}
	}
	if own != nil && s.claims[own.id] == own {
		p.decide(own, now)
	}
}

// takeReply takes a reply to a request that was sent after the votes of its server were void last. It
// reports whether the reply may concern claims that it does not name.
func (p *Party) takeReply(f flight, number uint64, sent time.Duration, r Reply, now time.Duration) (all bool) {
	s, i := f.session, f.server
	seat := &s.seats[i]
	switch r.Outcome {
	case NoSession:
		p.void(s, i)
		seat.absent, seat.absentAt, seat.other = true, now, 0
		return true
	case OtherEpoch:
		return p.displacedAt(s, i, r.Epoch)
	case Done:
		joins := false
		switch f.kind {
		case Renew, Restore:
			joins = !seat.joined // it may lack claims for which no Restore was possible
			seat.renewed(sent, r.Now, r.Until)
		}
		return p.takeClaims(f, number, sent, r, now) || joins
	case NotKnown, Differs, Full:
		if f.kind == Claim && f.claim != nil {
			p.refusedBy(f.claim, i, number, r)
		} else {
			p.takeClaims(f, number, sent, r, now)
		}
	}
	return false
}

// displacedAt records that a server has the session under a higher epoch, of another party. It returns
// false if the epoch is that of an attempt of this party.
func (p *Party) displacedAt(s *session, server int, epoch uint64) bool {
	if p.attaching(s.id, epoch) {
		s.seats[server].attached = epoch
		return false
	}
	if epoch <= s.epoch {
		return false
	}
	p.void(s, server)
	s.seats[server].other = epoch
	for i := range s.seats {
		s.seats[i].renew = s.seats[i].renew || s.seats[i].absent // a Restore may be impossible from now on
	}
	return true
}

// refusedBy records that a server does not take a claim. A server that does not know a claim below the
// low-water mark lacks it: it was away when the claim was made. pushLive restores it there.
func (p *Party) refusedBy(c *claim, server int, number uint64, r Reply) {
	b := &c.at[server]
	if c.phase == ended || b.counts() {
		return
	}
	if r.Outcome == NotKnown && c.belowMark() {
		if !b.known || number > b.knownAt {
			b.invalidate()
			b.sent = false
		}
		return
	}
	b.ended, b.reason, b.text = true, lockkeeper.Cancelled, r.Text
	switch r.Outcome {
	case Full:
		b.reason = lockkeeper.Quota
	case Differs:
		b.reason = lockkeeper.Superseded
	}
}

// takeClaims takes the states in a reply. A reply to Renew or Restore has all claims of the session: the server
// does not have the others. takeClaims reports whether it lacks one that it had or may have had.
func (p *Party) takeClaims(f flight, number uint64, sent time.Duration, r Reply, now time.Duration) (lacks bool) {
	s, i := f.session, f.server
	var listed map[uint64]bool
	if f.kind == Renew || f.kind == Restore {
		listed = make(map[uint64]bool, len(r.Claims))
	}
	for k := range r.Claims {
		st := &r.Claims[k]
		if listed != nil {
			listed[st.ID] = true
		}
		c := s.claims[st.ID]
		if c == nil {
			p.endStray(s, i, st)
			if f.kind == Renew && st.Reason == lockkeeper.Superseded && now >= s.opened+s.ttl {
				p.sendStrayEnd(s, i, st.ID) // its client has had a TTL to come back and learn of the end (R16)
			}
			continue
		}
		if c.phase == ended {
			c.listed(i, st)
			continue
		}
		p.apply(c, i, evidence{state: st, now: r.Now, sent: sent, got: now, reply: true})
	}
	if listed == nil {
		return false
	}
	for id, c := range s.claims { // order does not matter: each claim is independent
		if listed[id] || c.phase == ended {
			continue
		}
		b := &c.at[i]
		forgotten := b.known && number > b.knownAt
		never := !b.known && b.sent && !b.claiming && number > b.askedAt
		if !b.ended && (forgotten || never) {
			b.invalidate()
			b.sent, lacks = false, true
		}
	}
	return lacks
}

// endStray ends a claim at a server that this party does not know: the server made it from a
// request that arrived after its end was forgotten.
func (p *Party) endStray(s *session, server int, st *ClaimState) {
	if st.State != lockkeeper.Ended && !st.Lapsed {
		p.sendStrayEnd(s, server, st.ID)
	}
}

func (p *Party) sendStrayEnd(s *session, server int, id uint64) {
	p.launch(flight{server: server, kind: End, session: s}, Request{
		Kind: End, Session: s.id, Epoch: s.epoch, LowestOpen: s.lowestOpen, ID: id, Reason: lockkeeper.Cancelled,
	})
}

// superseded reports whether another party has taken s over at so many servers that this one can't
// reach a majority, or a majority does not have s any more: another party took it over and left it. A server
// that lacks the session counts for this party as long as it may be restored there, or has not answered yet.
func (p *Party) superseded(s *session, now time.Duration) bool {
	others, gone, usable := 0, 0, 0
	restorable := now < s.limit() && now < p.deadline(s)
	for i := range s.seats {
		seat := &s.seats[i]
		asked := seat.renew || seat.renewing || seat.restoring || seat.attaching
		switch {
		case seat.other != 0:
			others++
		case seat.absent && !restorable && !asked:
			gone++
		case p.up[i]:
			usable++
		}
	}
	return others > 0 && usable < p.majority || others+gone >= p.majority
}

// supersede ends s because another party has it, or left it.
func (p *Party) supersede(s *session, now time.Duration) {
	p.out.Notices = append(p.out.Notices, Notice{Session: s.id, Epoch: s.epoch})
	p.closeSession(s, errSession)
}

// expire ends s because its deadline has passed without a renewal that reached the client.
func (p *Party) expire(s *session, now time.Duration) {
	for _, c := range s.inOrder() {
		if c.phase != ended {
			p.finish(c, lockkeeper.Expired, "", now)
		}
	}
	p.closeSession(s, nil)
}

// closeSession forgets s. Its calls that wait are refused; those that end a claim get the answer end, which is
// nil if all claims are over.
func (p *Party) closeSession(s *session, end error) {
	s.over = true
	delete(p.sessions, s.id)
	p.timers.set(&s.timer, never)
	p.answerAll(s.renewals, errSession)
	for _, c := range s.inOrder() {
		if c.phase == ended {
			p.unname(c)
		}
		p.answerAll(c.callers, errSession)
		p.answerAll(c.enders, end)
		p.timers.set(&c.timer, never)
	}
}

// afterReply sends what is due for s as a whole, answers renewals, and sets the timer.
func (p *Party) afterReply(s *session, now time.Duration) {
	if s.over {
		return
	}
	p.checkLeases(s, now)
	if s.over {
		return
	}
	p.pushSeats(s, now)
	p.scheduleSession(s, now)
}

// limit returns when the session is over for this party: at the deadline that its client knows. While
// the client knows none, a TTL after the Attach had a majority.
func (s *session) limit() time.Duration {
	if s.clientEnd == 0 {
		return s.opened + s.ttl
	}
	return s.clientEnd
}

func (p *Party) scheduleSession(s *session, now time.Duration) {
	at := s.retryAt
	at = min(at, s.limit())
	if len(s.renewals) > 0 && s.patience > now { // one that has passed was for a renewal before these
		at = min(at, s.patience)
	}
	p.timers.set(&s.timer, max(at, now+shortestPause))
}

// shortestPause keeps a timer that changes nothing from firing again at once.
const shortestPause = time.Millisecond

func (p *Party) wakeSession(s *session, now time.Duration) {
	if now >= s.limit() {
		p.expire(s, now)
		return
	}
	if now >= s.retryAt {
		s.retryAt = never
	}
	p.afterReply(s, now)
}

// pushSession sends everything that is due for s and its claims.
func (p *Party) pushSession(s *session, now time.Duration) {
	p.pushSeats(s, now)
	for _, c := range s.inOrder() {
		p.decide(c, now)
	}
	p.scheduleSession(s, now)
}
