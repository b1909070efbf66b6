package replica

import (
	"errors"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A CallID names a call or a read of one Replica. It rises with every call.
type CallID uint64

// An Answer is the one answer to a call or a read. Err is the refusal of the table, for a Put
// [ErrRevision] or [ErrFull], or [lockkeeper.ErrUnavailable] with one of the causes below. Reply is
// empty for a read: it says that Replica.Table and Replica.Setting are current until the next input.
type Answer struct {
	Call     CallID
	Reply    table.Reply
	Revision uint64 // to a Put: of the setting, also after ErrRevision and ErrFull; see Setting.Revision
	Err      error
}

// The causes of ErrUnavailable beside ErrStopped.
var (
	// ErrNoLeader: the call was not made.
	ErrNoLeader = errors.New("no node of the cluster leads now: too many nodes, or the network between them, are down")
	// ErrBusy: the call was not made.
	ErrBusy = errors.New("too many calls wait for the cluster")
	// ErrUnknown: the call may have been made, or may still be made.
	ErrUnknown = errors.New("the leader of the cluster did not answer in time, or changed: " +
		"it is not known whether the call was made")
)

// Unavailable returns an ErrUnavailable with this cause. Its reason is QuorumLost if the cause is
// ErrNoLeader.
func Unavailable(cause error) error {
	e := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
	if errors.Is(cause, ErrNoLeader) {
		e.Reason = lockkeeper.QuorumLost
	}
	return e
}

// calls are the calls of this node without an answer. A call goes this way; each arrow to "answered"
// happens at most once. A call that is refused or denied is in no entry of the log, since the leader
// receives each sending once ([arrivals]):
//
//	waiting ── sent to the leader ──> sent ── entry applied ──────────────> answered
//	   ^  │                            │ ├── denied ──────────────────────> answered
//	   │  │                            │ ├── leader changed: ErrUnknown ──> answered
//	   │  │                            │ ├── snapshot:       ErrUnknown ──> answered
//	   │  │                            │ └── deadline:       ErrUnknown ──> answered
//	   └──┼── refused: not leading ────┘
//	      └── deadline: ErrNoLeader ──────────────────────────────────────> answered
type calls struct {
	last    CallID
	pending map[CallID]*call
	order   []CallID // by id and so by deadline; has answered ones too
	unsent  []CallID // waiting ones; has answered ones too
	refused []CallID // waiting ones that go to unsent with the next tick

	attempts uint64 // how often calls were sent
}

type call struct {
	caller   Caller
	request  []byte // without a time
	deadline time.Duration
	sentTo   uint64 // the leader that has it; 0: it waits for one
	attempt  uint64 // of calls.attempts, when it was last sent
}

// Call is the input of a command of this node's callers: Attach, Renew, Claim or End. Command.At is
// ignored. Its one answer comes with an Output, unless it is cancelled.
func (r *Replica) Call(now time.Duration, c table.Command) CallID { return r.CallAs(now, Caller{}, c) }

// CallAs is Call for an authenticated caller. Under a policy, a caller without a name may do nothing.
func (r *Replica) CallAs(now time.Duration, by Caller, c table.Command) CallID {
	r.begin(now)
	c.At = 0
	return r.admit(&request{command: c, caller: by}, by.check())
}

// admit makes a call of a request, or answers it at once. err is what is known to be wrong with it.
func (r *Replica) admit(q *request, err error) CallID {
	r.calls.last++
	id := r.calls.last
	if err == nil {
		err = r.config.refuse(q)
	}
	switch {
	case err != nil:
	case r.failed != nil:
		err = Unavailable(r.failed)
	case len(r.calls.pending) >= r.config.MaxQueued:
		err = Unavailable(ErrBusy)
	}
	if err != nil {
		r.out.Answers = append(r.out.Answers, Answer{Call: id, Err: err})
		return id
	}
	r.calls.pending[id] = &call{
		caller:   q.caller,
		request:  appendRequest(nil, r.writtenUnder(), q),
		deadline: r.now + r.config.CallTimeout,
	}
	r.calls.order = append(r.calls.order, id)
	r.calls.unsent = append(r.calls.unsent, id)
	r.settle()
	return id
}

// Cancel is the input that nobody waits for a call or a read any more. It gets no answer, and is not
// made if it has not been sent yet.
func (r *Replica) Cancel(id CallID) {
	delete(r.calls.pending, id)
	r.cancelRead(id)
	r.out.Answers = slices.DeleteFunc(r.out.Answers, func(a Answer) bool { return a.Call == id }) // of Together
}

// refuse returns the error of a request that no state of the cluster allows.
func (c *Config) refuse(q *request) error {
	if q.setting != nil {
		return q.setting.check()
	}
	switch q.command.Op {
	case table.Attach:
		return q.command.Session.Check(c.Guarantees.NoExpiry)
	case table.Renew:
		return nil
	case table.Claim:
		return c.Guarantees.Refuse(&q.command.Want)
	case table.End:
		return c.Guarantees.RefuseEnding(&q.command.Ending)
	}
	return lockkeeper.Invalid("a call can't be a %q", q.command.Op.String())
}

// sendWaiting sends the waiting calls to the leader.
func (r *Replica) sendWaiting() {
	if r.lead.leader == 0 {
		return
	}
	unsent := r.calls.unsent
	r.calls.unsent = nil
	for _, id := range unsent {
		c := r.calls.pending[id]
		if c == nil {
			continue
		}
		c.sentTo = r.lead.leader
		r.calls.attempts++
		c.attempt = r.calls.attempts
		m := Message{
			From:        r.config.ID,
			To:          r.lead.leader,
			Kind:        kindCall,
			Incarnation: r.config.Incarnation,
			Call:        id,
			Attempt:     c.attempt,
			Term:        r.lead.term,
			Caller:      c.caller,
			Request:     c.request,
		}
		if m.To == m.From {
			r.receiveCall(&m)
		} else {
			r.out.Sends = append(r.out.Sends, m)
		}
	}
}

// receiveRefusal puts a call back that a node did not make. If it did not lead, the call waits for
// the next tick.
func (r *Replica) receiveRefusal(m *Message) {
	c := r.calls.pending[m.Call]
	if c == nil || m.Incarnation != r.config.Incarnation || c.sentTo != m.From || c.attempt != m.Attempt {
		return
	}
	switch m.Kind {
	case kindNotLeading:
		c.sentTo = 0
		r.calls.refused = append(r.calls.refused, m.Call)
	case kindBusy:
		r.answer(Answer{Call: m.Call, Err: Unavailable(ErrBusy)})
	case kindInvalid:
		r.answer(Answer{Call: m.Call, Err: lockkeeper.Invalid("the leader refused the call: %s", m.Text)})
	case kindDenied:
		r.answer(Answer{Call: m.Call, Err: m.Refusal.error(m.Text)})
	}
}

// endSentCalls answers the calls that a leader has, and whose outcome is unknown: because another one
// leads, or because a snapshot may have applied them.
func (r *Replica) endSentCalls() {
	for _, id := range r.calls.order {
		if c := r.calls.pending[id]; c != nil && c.sentTo != 0 {
			r.answer(Answer{Call: id, Err: Unavailable(ErrUnknown)})
		}
	}
}

// expireCalls answers the calls whose deadline has passed, and lets waiting ones try again.
func (r *Replica) expireCalls() {
	order := r.calls.order
	for len(order) > 0 {
		c := r.calls.pending[order[0]]
		if c != nil && c.deadline > r.now {
			break
		}
		if c != nil {
			cause := ErrNoLeader
			if c.sentTo != 0 {
				cause = ErrUnknown
			}
			r.answer(Answer{Call: order[0], Err: Unavailable(cause)})
		}
		order = order[1:]
	}
	r.calls.order = order
	r.resendRefused()
}

// resendRefused lets refused calls go to the leader again.
func (r *Replica) resendRefused() {
	r.calls.unsent = append(r.calls.unsent, r.calls.refused...)
	r.calls.refused = nil
}

// endAllCalls answers everything.
func (r *Replica) endAllCalls(cause error) {
	for _, id := range r.calls.order {
		r.answer(Answer{Call: id, Err: Unavailable(cause)})
	}
	r.calls.order, r.calls.unsent, r.calls.refused = nil, nil, nil
	r.endAllReads(cause)
}
