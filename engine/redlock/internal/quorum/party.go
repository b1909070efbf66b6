package quorum

import (
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
type Party struct {
	n int
}

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
}

// Settings of a Party. All are required.
type Settings struct {
	Servers int    // N: 1, 3, 5 or 7
	To      string // the channel on which servers send messages to this party
	Seed    uint64 // of random pauses and nonces
}

// NewParty returns a party without sessions, to which no server is up yet.
func NewParty(s Settings) *Party { panic("not written yet") }

// Attach, Renew, Claim and End begin the calls of [lockkeeper.Engine]; arguments are valid as their
// Check methods say, and the features are claimed. Every call gets one Answer, unless Abandon comes
// first. Leave and Lapsed are endings; Revoke of a claim of any session too.
//
//	func (p *Party) Attach(now time.Duration, s lockkeeper.Session) CallID
//	func (p *Party) Renew(now time.Duration, k lockkeeper.Key) CallID
//	func (p *Party) Claim(now time.Duration, k lockkeeper.Key, w lockkeeper.Want) CallID
//	func (p *Party) End(now time.Duration, k lockkeeper.Key, e lockkeeper.Ending) CallID
//
// Abandon says that the caller of a call has gone: its ctx ended. The outcome is unknown to the
// caller. What the call began goes on until the client repeats it, ends it, or its session ends.
//
//	func (p *Party) Abandon(now time.Duration, c CallID)
//
// Reply is the answer of a server to a Send. sent and the time of Reply are on the boot clock; sent
// is not later than the moment when the first byte of the request left.
//
//	func (p *Party) Reply(now time.Duration, number uint64, sent time.Duration, r Reply)
//
// Failed says that no answer will come: whether the server executed the request is unknown. unsent: it
// certainly did not.
//
//	func (p *Party) Failed(now time.Duration, number uint64, unsent bool)
//
// Message is a message of a server on the channel of the party.
//
//	func (p *Party) Message(now time.Duration, server int, m Message)
//
// Up says that the server can be used (again): it is a member of the set and lost nothing. Down says
// that it does not answer at present. Lost says that it lost its data or came back without proof:
// all votes and promises of it are void at once, and it is down.
//
//	func (p *Party) Up(now time.Duration, server int)
//	func (p *Party) Down(now time.Duration, server int)
//	func (p *Party) Lost(now time.Duration, server int)
//
// Tick says that time has passed. Next returns when the party wants the next Tick: 0 for never.
//
//	func (p *Party) Tick(now time.Duration)
//	func (p *Party) Next() time.Duration
//
// Output returns the output since the last Output.
//
//	func (p *Party) Output() Output
//
// Handshakes returns the measured durations of polite steals of this party, newest last, for metrics.
var _ = time.Second
