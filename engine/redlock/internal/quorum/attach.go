package quorum

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// An attempt is an Attach that has no majority yet:
//
//	caller ─ Attach ─> to all ──┬─ Done by a majority ─────> installed: the session has the new epoch
//	                            └─ OtherEpoch, and the rest ─> refused, with the highest epoch that a server stated
//	                               is no majority; answers in flight have a moment to state a higher one
//
// Servers that answer Done later join the session then. takeover.go says which claims go on.
type attempt struct {
	spec      lockkeeper.Session
	epoch     uint64
	nonce     string
	call      CallID
	began     time.Duration
	verifying bool // the session is open here under a lower epoch than the attach follows
	flying    []bool
	replies   []attachReply
	other     uint64
	refuseBy  time.Duration // when it is refused without the answers in flight; 0: it may still succeed
	full      string
	installed *session
	adopted   []*claim // that the session got from this attach, and that are not judged yet
	timer     timer
}

// An attachReply is what one server answered; nothing while at is 0.
type attachReply struct {
	got    bool
	number uint64
	sent   time.Duration
	at     time.Duration
	reply  Reply
}

// Attach begins [lockkeeper.Engine.Attach].
func (p *Party) Attach(now time.Duration, spec lockkeeper.Session) CallID {
	id := p.begin(call{at: now, attach: true})
	if s := p.sessions[spec.ID]; s != nil && now >= s.limit() {
		p.expire(s, now)
	}
	if s := p.sessions[spec.ID]; s != nil && spec.Epoch < s.epoch {
		p.answer(Answer{Call: id, Err: wrongEpoch(spec.ID, s.epoch)})
		return id
	}
	if p.sessions[spec.ID] == nil && len(p.sessions) >= MaxSessions {
		p.answer(Answer{Call: id, Err: quota("sessions of one process", MaxSessions)})
		return id
	}
	spec.Named, spec.Lapsed = slices.Clone(spec.Named), slices.Clone(spec.Lapsed)
	a := &attempt{
		spec: spec, call: id, began: now, flying: make([]bool, p.n), replies: make([]attachReply, p.n),
	}
	a.timer = timer{attempt: a, order: p.base.created()}
	if old := p.attempts[spec.ID]; old != nil {
		p.dropAttempt(old)
	}
	p.attempts[spec.ID] = a
	if p.base.known < p.majority {
		p.unready = append(p.unready, a)
		p.timers.set(&a.timer, now+retryPause)
		return id
	}
	p.startAttempt(a, now)
	return id
}

func wrongEpoch(id string, epoch uint64) error {
	return &lockkeeper.Error{
		Err: lockkeeper.ErrSession, Epoch: epoch,
		Detail: "session " + id + " is open under epoch " + strconv.FormatUint(epoch, 10) +
			": to take it over, attach with that epoch",
	}
}

// startUnready begins the attempts that waited for the time base.
func (p *Party) startUnready(now time.Duration) {
	if len(p.unready) == 0 || p.base.known < p.majority {
		return
	}
	waiting := p.unready
	p.unready = nil
	for _, a := range waiting {
		if p.attempts[a.spec.ID] == a {
			p.startAttempt(a, now)
		}
	}
}

func (p *Party) startAttempt(a *attempt, now time.Duration) {
	a.epoch = max(p.base.next(now), a.spec.Epoch+1)
	if s := p.sessions[a.spec.ID]; s != nil {
		a.epoch = max(a.epoch, s.epoch+1)
		a.verifying = a.spec.Epoch > s.epoch && a.spec.Epoch != s.statedEpoch()
	}
	p.base.last = max(p.base.last, a.epoch)
	a.nonce = strconv.FormatUint(p.random.Uint64(), 36) + strconv.FormatUint(p.random.Uint64(), 36)
	if a.verifying {
		p.verify(a, now)
		return
	}
	p.pushAttach(a, now)
}

// statedEpoch returns the highest epoch of the session that a server stated.
func (s *session) statedEpoch() uint64 {
	stateSent := uint64(0)
	for i := range s.seats {
		stateSent = max(stateSent, s.seats[i].other)
	}
	return stateSent
}

// verify asks the servers whether the session still has this party's epoch, because the attach follows
// a higher one that no server has stated.
func (p *Party) verify(a *attempt, now time.Duration) {
	s := p.sessions[a.spec.ID]
	for i := range s.seats {
		s.seats[i].renew = true
	}
	p.pushSeats(s, now)
	p.timers.set(&a.timer, now+retryPause)
}

// verified refuses or begins an attempt that waits for verify.
func (p *Party) verified(a *attempt, now time.Duration) {
	s := p.sessions[a.spec.ID]
	switch {
	case s == nil || s.statedEpoch() != 0:
		a.verifying = false
		p.pushAttach(a, now)
		return
	}
	fresh := 0
	for i := range s.seats {
		if s.seats[i].joined && s.seats[i].renewedFrom >= a.began {
			fresh++
		}
	}
	if fresh >= p.majority {
		p.answer(Answer{Call: a.call, Err: wrongEpoch(a.spec.ID, s.epoch)})
		p.dropAttempt(a)
	}
}

// attaching reports whether epoch is that of an attempt of this party for the session.
func (p *Party) attaching(id string, epoch uint64) bool {
	a := p.attempts[id]
	return a != nil && a.epoch == epoch
}

func (p *Party) dropAttempt(a *attempt) {
	p.timers.set(&a.timer, never)
	if p.attempts[a.spec.ID] == a {
		delete(p.attempts, a.spec.ID)
	}
	p.unready = slices.DeleteFunc(p.unready, func(b *attempt) bool { return a == b })
}

// pushAttach sends the attach to all servers that are up and have not answered.
func (p *Party) pushAttach(a *attempt, now time.Duration) {
	if a.verifying || a.epoch == 0 || a.installed != nil {
		return
	}
	for i := range a.replies {
		if a.replies[i].got || a.flying[i] || !p.up[i] {
			continue
		}
		a.flying[i] = true
		r := Request{
			Kind: Attach, Session: a.spec.ID, Epoch: a.spec.Epoch,
			Attach: AttachRequest{
				NewEpoch: a.epoch, Nonce: a.nonce, TTL: micros(a.spec.TTL), To: p.to, Named: a.spec.Named,
				Label: a.spec.Label,
			},
		}
		for _, l := range a.spec.Lapsed {
			r.Attach.Lapsed = append(r.Attach.Lapsed, LapseRecord{ID: l.ID, Reason: l.Reason})
		}
		p.launch(flight{server: i, kind: Attach, attempt: a}, r)
	}
	p.timers.set(&a.timer, a.began+2*a.spec.TTL)
}

// retryAttempt goes on after an Attach to one server failed. If a majority has accepted the attempt, a
// Renew shows whether this server has the session.
func (p *Party) retryAttempt(a *attempt, server int, now time.Duration) {
	if a.installed == nil && p.attempts[a.spec.ID] == a {
		p.timers.set(&a.timer, now+retryPause)
		if a.refuseBy != 0 {
			p.conclude(a, now)
		}
	} else if s := a.installed; s != nil && !s.over && s.epoch == a.epoch {
		s.seats[server].attaching, s.seats[server].renew = false, true
		p.afterReply(s, now)
	}
}

// wakeAttempt repeats what got no answer. An attempt ends two TTLs after it began: its caller has
// gone long ago.
func (p *Party) wakeAttempt(a *attempt, now time.Duration) {
	switch {
	case now >= a.began+2*a.spec.TTL:
		p.dropAttempt(a)
	case a.epoch == 0:
		for i := range p.base.samples {
			if p.up[i] && !p.base.samples[i].known {
				p.probe(i)
			}
		}
		p.timers.set(&a.timer, now+retryPause)
	case a.verifying:
		p.timers.set(&a.timer, now+retryPause)
		p.verified(a, now)
	default:
		p.pushAttach(a, now)
		p.conclude(a, now)
	}
}

// attachReply takes the reply of one server to an Attach.
func (p *Party) attachReply(f flight, number uint64, sent time.Duration, r Reply, now time.Duration) {
	a, i := f.attempt, f.server
	a.flying[i] = false
	if a.installed != nil {
		p.joinLate(a, i, number, sent, r, now)
		return
	}
	if p.attempts[a.spec.ID] != a {
		return
	}
	a.replies[i] = attachReply{got: true, number: number, sent: sent, at: now, reply: r}
	switch r.Outcome {
	case OtherEpoch:
		a.other = max(a.other, r.Epoch)
	case Full:
		a.full = r.Text
	}
	p.conclude(a, now)
	if r.Outcome == OtherEpoch {
		p.noteDisplaced(a.spec.ID, i, number, r.Epoch, now)
	}
}

// noteDisplaced takes from the refusal of an Attach that another party has taken over the session that
// this party has under a lower epoch. Else the next Attach would be refused here, with that epoch, until
// the session ends.
func (p *Party) noteDisplaced(id string, server int, number, epoch uint64, now time.Duration) {
	s := p.sessions[id]
	if s == nil || number < s.seats[server].since || !p.displacedAt(s, server, epoch) {
		return
	}
	if p.superseded(s, now) {
		p.supersede(s, now)
		return
	}
	p.decideAfter(s, nil, nil, true, now)
	p.afterReply(s, now)
}

// conclude installs or refuses the attempt if the replies suffice.
func (p *Party) conclude(a *attempt, now time.Duration) {
	done, open := 0, 0
	for k := range a.replies {
		switch {
		case a.replies[k].got && a.replies[k].reply.Outcome == Done:
			done++
		case !a.replies[k].got && p.up[k]:
			open++
		}
	}
	switch {
	case done >= p.majority && p.undecided(a, done, open) && now < a.patience():
		p.timers.set(&a.timer, a.patience())
	case done >= p.majority:
		p.install(a, now)
	case done+open < p.majority && a.other != 0 && p.mayStateMore(a, now):
		p.timers.set(&a.timer, a.refuseBy)
	case done+open < p.majority && a.other != 0:
		if done > 0 {
			a.other = max(a.other, a.epoch) // some servers have taken it: the next attach has to follow that
		}
		p.answer(Answer{Call: a.call, Err: wrongEpoch(a.spec.ID, a.other)})
		p.dropAttempt(a)
	case done+open < p.majority && a.full != "":
		p.answer(Answer{Call: a.call, Err: &lockkeeper.Error{
			Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: a.full,
		}})
		p.dropAttempt(a)
	}
}

// mayStateMore reports whether an answer in flight may state a higher epoch than those that refused the
// attempt, and is worth a moment: an attach that follows too low an epoch is refused again.
func (p *Party) mayStateMore(a *attempt, now time.Duration) bool {
	if a.refuseBy == 0 {
		a.refuseBy = now + slowServer
	}
	return now < a.refuseBy && slices.Contains(a.flying, true)
}

// install makes the session of an attempt that a majority has accepted.
func (p *Party) install(a *attempt, now time.Duration) {
	p.dropAttempt(a)
	s := p.sessions[a.spec.ID]
	if s != nil && s.epoch > a.epoch {
		p.answer(Answer{Call: a.call, Err: wrongEpoch(s.id, s.epoch)})
		return
	}
	if s != nil && s.epoch < a.spec.Epoch {
		p.closeSession(s, errSession) // another party had it meanwhile: what this one knew of it is out of date
		s = nil
	}
	if s == nil {
		s = p.newSession(a.spec.ID)
		s.states = a.spec.Epoch != 0 // its client may have stated acknowledgements to another party
		p.sessions[s.id] = s
	}
	a.installed = s
	p.answerAll(s.renewals, errSession)
	s.renewals, s.patience = s.renewals[:0], never
	s.epoch, s.ttl, s.label, s.lowestOpen = a.epoch, a.spec.TTL, a.spec.Label, 0
	s.opened = now
	for i := range s.seats {
		s.seats[i].other = 0
		s.seats[i].attaching = a.flying[i]
		s.seats[i].renew = !a.replies[i].got && !a.flying[i]
	}
	p.endUnnamed(s, a, now)
	p.endExpired(s, a, now)
	for i := range a.replies {
		if r := &a.replies[i]; r.got && r.reply.Outcome == Done {
			p.join(s, a, i, r, now)
		}
	}
	p.endMinorities(a, now)
	if end := p.deadline(s); end > a.began+s.ttl+100*time.Millisecond {
		s.clientEnd = max(s.clientEnd, end-50*time.Millisecond) // an earlier attach promised more (R11)
	}
	s.renewals = append(s.renewals, a.call)
	for _, c := range s.inOrder() {
		p.decide(c, now)
	}
	p.afterReply(s, now)
}
