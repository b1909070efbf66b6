package quorum

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Party is one process with the engine: it sends requests to N servers, and concludes from their
// replies what its sessions hold. Its methods are the steps of a state machine: each takes the time
// on the boot clock of its computer, changes the state, and adds to the output, which Output
// returns. Equal inputs lead to equal outputs. It is not safe for concurrent use.
//
//	caller ── Attach, Renew, Claim, End, Abandon ──>         ── Answers ──> caller
//	server ── Reply, Failed, Message, Up, Lost ───>  Party   ── Sends ────> servers
//	clock ─── Tick ───────────────────────────────>          ── Notices ──> clients
//
// What it does for a claim, until the caller ends it or the servers do:
//
//	           Claim to all               majority of votes, stamped with one fence
//	caller ──────────────> asking/waiting ─────────────────────────────────────────> held
//	                          │  └─ a try is refused, the wait is over, cancelled      │ released, stolen, expired,
//	                          v                                                        v overdue, revoked, lapsed
//	                        ended <─────────────────────────────────────────────────── ended ── End to all, repeated
type Party struct {
	n, majority int
	to          string
	random      *rand.Rand
	up          []bool
	reported    []bool   // its link has said that it is up or down: before, it is being connected
	lostAt      []uint64 // replies to requests up to this number are void
	base        timebase
	sessions    map[string]*session
	attempts    map[string]*attempt // the latest attach of a session that has not succeeded yet
	unready     []*attempt          // they wait for the time base
	errands     []*errand           // departures and revocations that some server has not executed yet
	calls       map[CallID]call
	flights     map[uint64]flight
	timers      timers
	call        CallID // the latest
	number      uint64 // of the latest Send
	shakes      handshakes
	out         Output
}

// Limits of a party.
const (
	MaxSessions      = 100_000
	MaxSessionClaims = 10_000 // that have not ended, of one session
)

// CallID names a call of the engine's caller until its Answer.
type CallID uint64

// Send is a request for one server.
type Send struct {
	Server  int
	Request Request
	Number  uint64 // names the request in Reply and Failed; never 0
}

// Answer is the outcome of a call. Err is nil, or one that [lockkeeper.Engine] allows; the other
// field of the method's result is set then.
type Answer struct {
	Call   CallID
	Err    error
	Lease  lockkeeper.Lease  // of Attach and Renew
	Status lockkeeper.Status // of Claim
}

// Notice has statuses for the function that the latest Attach of the session gave; without statuses
// it says that hints may be missing.
type Notice struct {
	Session  string
	Epoch    uint64
	Statuses []lockkeeper.Status
}

// Output is what a Party wants done, in order.
type Output struct {
	Sends   []Send
	Answers []Answer
	Notices []Notice

	// Handshakes are the durations of polite steals, from the moment when a majority of the servers
	// had asked the holder until the grant by its release.
	Handshakes []time.Duration
}

// Settings of a Party. All are required.
type Settings struct {
	Servers int    // N: 1, 3, 5 or 7
	To      string // the channel on which servers send messages to this party
	Seed    uint64 // of random pauses and nonces
}

// NewParty returns a party without sessions, to which no server is up yet.
func NewParty(s Settings) *Party {
	return &Party{
		n:        s.Servers,
		majority: s.Servers/2 + 1,
		to:       s.To,
		random:   rand.New(rand.NewPCG(s.Seed, 0x7265646c6f636b)),
		up:       make([]bool, s.Servers),
		reported: make([]bool, s.Servers),
		lostAt:   make([]uint64, s.Servers),
		base:     newTimebase(s.Servers),
		sessions: make(map[string]*session),
		attempts: make(map[string]*attempt),
		calls:    make(map[CallID]call),
		flights:  make(map[uint64]flight),
	}
}

// A call of the caller that has no Answer yet.
type call struct {
	at     time.Duration // when it began
	attach bool
}

func (p *Party) begin(c call) CallID {
	p.call++
	p.calls[p.call] = c
	return p.call
}

// answer answers a call, unless it has its answer already or its caller has gone.
func (p *Party) answer(a Answer) {
	if _, waits := p.calls[a.Call]; waits {
		delete(p.calls, a.Call)
		p.out.Answers = append(p.out.Answers, a)
	}
}

func (p *Party) answerAll(calls []CallID, err error) {
	for _, id := range calls {
		p.answer(Answer{Call: id, Err: err})
	}
}

// Abandon says that the caller of a call has gone: its ctx ended. The outcome is unknown to the
// caller. What the call began goes on until the client repeats it, ends it, or its session ends.
func (p *Party) Abandon(_ time.Duration, c CallID) { delete(p.calls, c) }

// Output returns the output since the last Output.
func (p *Party) Output() Output {
	out := p.out
	p.out = Output{}
	return out
}

// Reuse gives the slices of an Output back, whose content the caller has copied or dropped. The next
// output takes their place. Statuses of notices are not reused.
func (p *Party) Reuse(out Output) {
	if len(p.out.Sends)+len(p.out.Answers)+len(p.out.Notices) > 0 {
		return
	}
	clear(out.Sends)
	clear(out.Answers)
	clear(out.Notices)
	p.out = Output{Sends: out.Sends[:0], Answers: out.Answers[:0], Notices: out.Notices[:0]}
}

// Up says that the server can be used (again): it is a member of the set and lost nothing.
func (p *Party) Up(now time.Duration, server int) {
	if p.up[server] {
		return
	}
	p.up[server], p.reported[server] = true, true
	p.probe(server)
	for _, a := range p.sortedAttempts() {
		p.pushAttach(a, now)
	}
	for _, s := range p.sortedSessions() {
		s.seats[server].renew = len(s.claims) > 0 || len(s.renewals) > 0
		p.pushSession(s, now)
	}
	for _, e := range p.errands {
		p.pushErrand(e)
	}
}

// Down says that the server does not answer at present. Requests to it fail one by one.
func (p *Party) Down(now time.Duration, server int) {
	connecting := !p.reported[server]
	p.up[server], p.reported[server] = false, true
	if !connecting {
		return
	}
	for _, s := range p.sortedSessions() { // tries may wait for it
		for _, c := range s.inOrder() {
			p.decide(c, now)
		}
	}
}

// Lost says that the server lost its data or came back without proof: all votes and promises of it
// are void at once, and it is down.
func (p *Party) Lost(now time.Duration, server int) {
	p.up[server], p.reported[server] = false, true
	p.base.forget(server)
	p.lostAt[server] = p.number
	for _, a := range p.sortedAttempts() {
		a.replies[server] = attachReply{}
	}
	for _, s := range p.sortedSessions() {
		seat := &s.seats[server]
		p.void(s, server)
		seat.absent, seat.absentAt, seat.other = true, now, 0
		for _, c := range s.inOrder() {
			p.decide(c, now)
		}
		p.afterReply(s, now)
	}
}

// Next returns when the party wants the next Tick: 0 for never.
func (p *Party) Next() time.Duration {
	if len(p.timers) == 0 {
		return 0
	}
	return p.timers[0].at
}

// Tick says that time has passed.
func (p *Party) Tick(now time.Duration) {
	for len(p.timers) > 0 && p.timers[0].at <= now {
		t := p.timers[0]
		p.timers.set(t, never)
		switch {
		case t.claim != nil:
			p.wakeClaim(t.claim, now)
		case t.session != nil:
			p.wakeSession(t.session, now)
		case t.attempt != nil:
			p.wakeAttempt(t.attempt, now)
		case t.errand != nil:
			p.wakeErrand(t.errand, now)
		}
	}
}

func (p *Party) sortedSessions() []*session {
	all := make([]*session, 0, len(p.sessions))
	for _, s := range p.sessions { // order does not matter: sorted below
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return strings.Compare(a.id, b.id) })
	return all
}

func (p *Party) sortedAttempts() []*attempt {
	all := make([]*attempt, 0, len(p.attempts))
	for _, a := range p.attempts { // order does not matter: sorted below
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *attempt) int { return strings.Compare(a.spec.ID, b.spec.ID) })
	return all
}
