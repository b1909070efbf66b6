package replica

import (
	"cmp"
	"encoding/binary"
	"errors"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

// PolicyKey is the setting with the policy of the cluster. Without it, every caller may do everything.
const PolicyKey = "policy"

// A Caller is who makes a call, as the node at which it came in has authenticated them.
type Caller struct {
	Name string // of the identity; "" if none was authenticated
	From string // the address, for people

	// Undecided: the node has not decided whether the call is allowed, since a policy of the cluster counts there. A
	// leader without a policy refuses its claims and acts, until the node has noticed.
	Undecided bool
}

// MaxCaller bounds the bytes of each field of a Caller.
const MaxCaller = 256

func (c *Caller) check() error {
	if len(c.Name) > MaxCaller || len(c.From) > MaxCaller {
		return lockkeeper.Invalid("a caller with a name of %d bytes and an address of %d: want at most %d", len(c.Name),
			len(c.From), MaxCaller)
	}
	return nil
}

// A Decider decides what callers may do under one policy. It sees the calls that a ready leader makes in
// their order, and the table that has all entries applied so far.
type Decider interface {
	// Permit returns why the caller may not make the command; nil if it may. A permitted command counts
	// from then on, until Applied or Dropped is called with it. The error is a *lockkeeper.Error.
	Permit(t *table.Table, by Caller, c *table.Command) error
	// Dropped says that a permitted command is not proposed now: Permit will be asked again.
	Dropped(c *table.Command)
	// Applied says that the table has the command. It is also called for commands that the decider does
	// not know.
	Applied(t *table.Table, c *table.Command)
}

// A Record is what an audit log has to know of the cluster: a denied call, an operator's act under a
// policy, a change of a setting, or a change of the configuration. Nodes that lead one after the other
// may both have a Record of one entry.
type Record struct {
	Index   uint64         // of the entry; of a denied call: of the last entry that was decided before
	Denied  bool           // it is a denied call
	Caller  Caller         // of the call; none of an act that an earlier leader has proposed
	Command *table.Command // a denied call, or the act
	Err     error          // of the command: why it was denied, or refused by the table
	Setting *Setting
	Change  *voters.Change
}

func (r *Replica) audit(record Record) {
	if r.lead.leading && r.config.Audit != nil {
		r.config.Audit(record)
	}
}

// isAct reports whether an operator makes that command.
func isAct(c *table.Command) bool {
	return c.Op == table.Claim && c.Want.Freeze > 0 ||
		c.Op == table.End && (c.Ending.Kind == lockkeeper.Revoke || c.Ending.Kind == lockkeeper.Thaw)
}

// appliedCommand notes what the table made of a command.
func (r *Replica) appliedCommand(index uint64, o origin, c *table.Command, err error) {
	if r.lead.decider != nil {
		r.lead.decider.Applied(r.table, c)
	}
	if !isAct(c) {
		return
	}
	by := r.lead.acts[o]
	delete(r.lead.acts, o)
	if len(r.settings.get(PolicyKey).Value) > 0 {
		r.audit(Record{Index: index, Caller: by, Command: c, Err: err})
	}
}

// needsDecision reports whether the leader or the node of the caller has to decide that the command is allowed. Every
// identity may renew and end its own claims.
func needsDecision(c *table.Command) bool {
	return isAct(c) || c.Op == table.Claim || c.Op == table.Attach
}

var errUndecided = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: "the cluster has no policy any more, and the node at which this call came in has not noticed yet",
}

func changesPolicy(q *queued) bool {
	return q.request.setting != nil && q.request.setting.Key == PolicyKey
}

// kindOf names a change of the configuration. A node that no longer votes is a learner again.
func kindOf(t pb.ConfChangeType) voters.ChangeKind {
	switch t {
	case pb.ConfChangeAddNode:
		return voters.Promote
	case pb.ConfChangeAddLearnerNode:
		return voters.Add
	}
	return voters.Remove
}

// permit reports whether a call of the queue may be proposed now. It refuses a call that the policy
// denies, for good.
func (r *Replica) permit(q *queued) bool {
	if q.request.setting != nil || q.origin.node == raft.None {
		return true // nodes make these by themselves
	}
	if q.denied {
		return false
	}
	policy := r.settings.get(PolicyKey)
	if len(policy.Value) == 0 {
		r.lead.decider = nil
		if q.request.caller.Undecided && needsDecision(&q.request.command) {
			r.refuseFinally(q, errUndecided)
			return false
		}
		return true
	}
	if r.lead.decider == nil || r.lead.decidedBy != policy.Revision {
		r.lead.decider, r.lead.decidedBy = newDecider(&r.config, policy.Value), policy.Revision
	}
	err := r.lead.decider.Permit(r.table, q.request.caller, &q.request.command)
	if err != nil {
		r.deny(q, err)
	}
	q.permitted = err == nil
	return q.permitted
}

// dropBatch takes back the permits of calls that raft did not take.
func (r *Replica) dropBatch(calls []queued) {
	for i := range calls {
		if q := &calls[i]; q.permitted {
			q.permitted = false
			r.lead.decider.Dropped(&q.request.command)
		}
	}
}

// deny is refuseFinally, for the audit log, too.
func (r *Replica) deny(q *queued, err error) {
	command := q.request.command
	index := r.applied + uint64(r.lead.inFlight)
	r.audit(Record{Index: index, Denied: true, Caller: q.request.caller, Command: &command, Err: err})
	r.refuseFinally(q, err)
}

// refuseFinally refuses a call, for good: see arrivals.
func (r *Replica) refuseFinally(q *queued, err error) {
	q.denied = true
	m := Message{
		From:        r.config.ID,
		To:          q.origin.node,
		Kind:        kindDenied,
		Incarnation: q.origin.incarnation,
		Call:        q.origin.call,
		Attempt:     q.attempt,
	}
	m.Refusal, m.Text = refusalOf(err)
	if m.To == m.From {
		r.receiveRefusal(&m)
	} else {
		r.out.Sends = append(r.out.Sends, m)
	}
}

// A refusal is what a message says of a denial, beside its text.
type refusal struct {
	code byte // of refusals
	path lockkeeper.Path
}

// refusals are the errors of a Decider, by code - 1. A last one is for all others.
var refusals = [...]lockkeeper.Error{
	{Err: lockkeeper.ErrDenied}, {Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota}, {Err: lockkeeper.ErrNotHeld},
	{Err: lockkeeper.ErrUnavailable}, {Err: lockkeeper.ErrInvalid},
}

func refusalOf(err error) (refusal, string) {
	code := len(refusals)
	for i := range refusals {
		if errors.Is(err, refusals[i].Err) && (refusals[i].Reason == 0 || errors.Is(err, refusals[i].Reason)) {
			code = i + 1
		}
	}
	if errors.Is(err, lockkeeper.ErrInvalid) {
		code = len(refusals)
	}
	x, text := refusal{code: byte(code)}, err.Error()
	if e, ok := errors.AsType[*lockkeeper.Error](err); ok {
		x.path, text = e.Path, e.Detail
	}
	return x, text
}

// error returns the error that a denial stands for.
func (x *refusal) error(text string) error {
	e := refusals[min(max(int(x.code), 1), len(refusals))-1]
	e.Path, e.Detail = x.path, text
	return &e
}

func cutRefusal(b []byte) (x refusal, rest []byte, err error) {
	if len(b) == 0 {
		return x, nil, errShort
	}
	x.code = b[0]
	path, b, err := cutBytes(b[1:])
	x.path = lockkeeper.Path(path)
	return x, b, err
}

func cutCaller(b []byte) (c Caller, rest []byte, err error) {
	name, b, err := cutBytes(b)
	if err != nil {
		return c, nil, err
	}
	from, b, err := cutBytes(b)
	if err != nil || len(b) == 0 {
		return c, nil, cmp.Or(err, errShort)
	}
	return Caller{string(name), string(from), b[0] != 0}, b[1:], nil
}

func appendCaller(b []byte, c *Caller) []byte {
	b = appendText(appendText(b, c.Name), c.From)
	if c.Undecided {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// newDecider returns what decides under a policy.
func newDecider(c *Config, policy []byte) Decider {
	if c.Decider != nil {
		return c.Decider(policy)
	}
	return nobody{}
}

// nobody permits nothing.
type nobody struct{}

func (nobody) Permit(*table.Table, Caller, *table.Command) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Detail: "the cluster has a policy, and the node that leads can't decide by it",
	}
}
func (nobody) Dropped(*table.Command)               {}
func (nobody) Applied(*table.Table, *table.Command) {}
