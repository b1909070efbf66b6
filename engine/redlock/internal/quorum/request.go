package quorum

import "github.com/lockkeeper/lockkeeper"

// Micros is a time or a duration in microseconds. A time counts on the clock of one server, and is
// never compared with the clock of another one.
type Micros int64

// Kind says what a [Request] asks of a server.
type Kind uint8

const (
	// Attach opens a session or takes it over.
	Attach Kind = iota + 1
	// Renew gives a session its whole TTL again.
	Renew
	// Claim queues a claim, repeats the question for its state, or amends it.
	Claim
	// Stamp raises the counters of a vote to the fence of the grant.
	Stamp
	// Return gives back a vote that did not lead to a grant.
	Return
	// End ends a claim: a release, a cancellation, a wait that is over.
	End
	// Lapse reports that the client stopped using a hold.
	Lapse
	// Leave ends a session and its claims.
	Leave
	// Restore sets records that the server lacks, of a session that a majority has (condition 3).
	Restore
	// Ack reports that the holder knows of the end of an ask.
	Ack
	// Revoke asks the holder to yield for an operator, or ends a claim at once.
	Revoke
	// List returns sessions and their claims.
	List
)

// A Request is one message to one server. A server executes it in one step. Requests may arrive
// twice, late, out of order, or never: each kind says why that does no harm.
type Request struct {
	Kind    Kind
	Session string // of all kinds but List; of Revoke the session of the claim
	Epoch   uint64 // of the caller's key; of Attach the epoch that the caller follows; not of Revoke

	// LowestOpen: claims with lower ids that the server does not know are over (R16). A server
	// refuses to queue them.
	LowestOpen uint64

	Attach  AttachRequest
	ID      uint64            // of Claim, Stamp, Return, End, Lapse, Revoke: the claim
	Want    WantRecord        // of Claim
	Vote    uint64            // of Stamp, Return: the number of the vote
	Fence   uint64            // of Stamp
	Favour  string            // of Return: the claim that gets the vote, if it waits here; "": any other claim
	Reason  lockkeeper.Reason // of End, Lapse: why
	Acks    []AckRecord       // of Ack
	Restore RestoreRequest    // of Restore
	Force   bool              // of Revoke
	Label   lockkeeper.Label  // of Revoke: the operator
	After   string            // of List: the session after which it goes on; "" from the beginning
	Limit   int               // of List: at most so many sessions
	Only    string            // of List: this session alone
	Ends    bool              // of List: the latest ends too; the server keeps those to come for a while
}

// AttachRequest is the rest of an Attach.
type AttachRequest struct {
	// NewEpoch is above Request.Epoch and above the epoch of every earlier attach that this party
	// knows of. Nonce tells two parties apart that propose the same one, and makes a repeated
	// request succeed again.
	NewEpoch uint64
	Nonce    string
	TTL      Micros
	To       string   // the channel of the party
	Named    []uint64 // claims that go on; all others of the session end as superseded, unless they lapsed
	Lapsed   []LapseRecord
	Label    lockkeeper.Label
}

// LapseRecord is a claim that lapsed, and the reason that its client counted by (R12).
type LapseRecord struct {
	ID     uint64
	Reason lockkeeper.Reason
}

// AckRecord says that the holder of a claim knows of the end of its ask at this server.
type AckRecord struct {
	ID  uint64
	End Micros // as Ask.End stated it
}

// RestoreRequest has what a majority of the servers has of a session. It is never sent after the
// party's own deadline of the session.
type RestoreRequest struct {
	TTL    Micros
	To     string
	Label  lockkeeper.Label
	Claims []RestoreClaim
}

// RestoreClaim is a claim of a Restore: held with a fence, or waiting with Fence 0.
type RestoreClaim struct {
	ID    uint64
	Want  WantRecord
	Fence uint64
	// Above is the highest vote number of the claim at this server that the party knows to be over.
	// The vote that Restore sets gets a higher one, so that no number is used twice.
	Above uint64
}

// WantRecord is a claim as servers keep it. All its paths are exclusive.
type WantRecord struct {
	Revision uint64
	Paths    []string // sorted
	Priority int
	Ticket   uint64 // microseconds of the common time base, the same at every server: the lowest goes first
	Try      bool   // do not queue it: end it as timed out if the server has no vote for it
	Steal    lockkeeper.Steal
	After    Micros // of Take
	AfterTTL int    // of Take: thousandths of the victim's TTL; 0: After counts
	Expected Micros // announced duration of the hold; 0: none
	MaxHold  Micros // longest hold, and the grace after it: the party ends the hold, servers only keep the values
	Grace    Micros
	Inside   lockkeeper.Ref
	Label    lockkeeper.Label
}

// Outcome is how a server took a request.
type Outcome uint8

const (
	// Done: the server executed the request.
	Done Outcome = iota + 1
	// NoSession: the server has no such session. It never had it, or lost it, or the session ended.
	NoSession
	// OtherEpoch: the session has a newer epoch, Reply.Epoch. Nothing changed.
	OtherEpoch
	// NotKnown: the server does not know the claim, and its id is below the low-water mark, or the
	// request may not make one. Nothing changed.
	NotKnown
	// Differs: another request was made under the same id and revision, or the amendment is not
	// possible. Nothing changed.
	Differs
	// Full: a limit of the server is reached, Reply.Text says which. Nothing changed.
	Full
)

// A Reply is the answer of one server, as of the moment when it executed the request.
type Reply struct {
	Outcome Outcome
	Now     Micros         // the clock of the server
	Epoch   uint64         // of OtherEpoch: the session's; of Attach: the one before it, 0 if the server had no session
	Until   Micros         // of Attach, Renew, Restore: the end of the session at this server
	Claims  []ClaimState   // the claim of the request; of Attach, Renew: all claims of the session
	Listed  []SessionState // of List
	More    bool           // of List: there are further sessions
	Ends    []EndRecord    // of List with Ends, unless there are further sessions: in order of time
	Text    string
}

// ClaimState is what one server knows of one claim. It is monotonic: whatever the order in which
// two states of one claim arrive, [Votes] takes the same from them.
type ClaimState struct {
	ID       uint64
	State    lockkeeper.State  // Waiting, Held: this server has voted for it; Ended
	Reason   lockkeeper.Reason // of Ended
	Text     string            // of Ended: an operator's note
	Revision uint64

	// Vote is the number of the vote that the claim has at this server; 0 if it has none. It is the
	// counter of its paths at the time of the vote: it rises with every vote on a path.
	Vote uint64
	// Counter is the highest counter of the claim's paths. Every vote of the claim with a number up to
	// Counter, but Vote, is over.
	Counter uint64

	// Unsure is the time until which a former holder may still rely on what this server promised it
	// (R12); 0 if there is none.
	Unsure Micros

	Since    Micros // of the vote; else the time when it began to wait here
	Lapsed   bool
	LapseEnd Micros // of Lapsed: when it ends
	Ask      *Ask   // of Held: it is asked to yield
	Asking   bool   // of Waiting: it asks the holders of its paths
	AskEnd   Micros // of Asking with Take: when it may get the vote; 0: none

	Position int         // of Waiting: 1 + the waiting claims ahead
	Blockers []Blocker   // of Waiting, and of Ended by Try: see NamedAhead
	Want     *WantRecord // in answers to Attach, Renew by another party, and List
}

// NamedAhead is how many waiting claims of a queue the state of a claim behind them names. What it
// costs to ask for the state does not depend on the length of the queue then. In lists, and for a
// refused Try, it is lockkeeper.MaxBlockers. Holders and waiting claims together are at most
// lockkeeper.MaxBlockers.
const NamedAhead = 2

// Ask is a request to the holder, as a server keeps it.
type Ask struct {
	By     string            // the claim that asks, "session.id"; "" for an operator
	Reason lockkeeper.Reason // Stolen or Revoked
	End    Micros            // when the vote ends unless the holder releases; 0: never
	Acked  bool              // the holder knows of End
	Label  lockkeeper.Label
}

// Blocker is a claim that another one waits for at one server.
type Blocker struct {
	Ref       lockkeeper.Ref
	Path      string
	Waiting   bool // it is ahead in the queue; else it has the vote of this server
	Vote      uint64
	Priority  int
	Ticket    uint64
	Since     Micros
	Until     Micros // the end of its session at this server, or of its ask if that is sooner
	Announced Micros // when its announced duration ends; 0: not announced
	Label     lockkeeper.Label
}

// SessionState is a session in an answer to List.
type SessionState struct {
	ID     string
	Epoch  uint64
	TTL    Micros
	Until  Micros
	Label  lockkeeper.Label
	Claims []ClaimState
}

// EndRecord is the end of a claim. Servers forget ended claims soon, so they keep the latest ends
// apart, for followers alone.
type EndRecord struct {
	At     Micros // on the clock of the server
	Ref    lockkeeper.Ref
	Reason lockkeeper.Reason
	Text   string
}

// A Message tells the party of a session that one of its claims changed at a server: it got the
// vote, is asked, is asked no more, or ended. It may be late, doubled or lost.
type Message struct {
	To      string
	Session string
	Epoch   uint64
	Now     Micros
	Claim   ClaimState
}
