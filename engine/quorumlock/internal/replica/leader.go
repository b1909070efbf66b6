package replica

import (
	"cmp"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/table"
)

// A leader proposes an entry when none is in flight, or batchTime after the last one; at most maxInFlight are in
// flight. Calls that arrive meanwhile share the next entry. An entry costs each node messages and a sync,
// whatever it has in it. Where a commit takes longer than batchTime, as between locations, a call waits for
// no other entry, only for batchTime.
const (
	batchTime   = 2 * time.Millisecond
	maxInFlight = 64
)

// leadership is what this node knows of the leader, and what it does if it leads:
//
//	another leads, or none ── won an election ──> leads ── applied its own entry ──> ready
//	         ^                                      │                                 │
//	         └──────────────── lost its leadership ─┴─────────────────────────────────┘
type leadership struct {
	leader  uint64 // 0: none that this node is in contact with
	term    uint64
	leading bool // this node leads
	ready   bool // it has applied an entry of its own term: from now on it stamps

	tableAt time.Duration // the time of the table when it became ready
	bootAt  time.Duration // Replica.now then

	matches map[uint64]match // of the nodes

	queue    []queued          // calls that it has not proposed
	acts     map[origin]Caller // who makes the operators' acts that it has proposed and not applied
	arrivals arrivals          // calls of other nodes in this term
	inFlight int               // entries that it has proposed and not applied
	proposed time.Duration     // Replica.now when it proposed the last of them
	stamped  time.Duration     // the time of the last entry
	blocked  bool              // raft takes no proposal until the next tick
	changing bool              // a change of the configuration is in the log, and not applied
	hash     []byte            // the entry with the hash of the latest snapshot, if it has to be proposed

	decider   Decider // under a policy; nil before it is needed
	decidedBy uint64  // the revision of its policy
	settling  bool    // a change of the policy is in the log, and not applied
}

// former is the latest term in which this node led, after that. Its zero value is none.
type former struct {
	term     uint64
	arrivals arrivals
}

type queued struct {
	origin  origin
	attempt uint64
	request request

	permitted bool // it is in the batch at hand, and the decider counts it
	denied    bool // its caller was told so: it is never proposed
}

// time is the time that a ready leader stamps with.
func (r *Replica) time() time.Duration { return r.lead.tableAt + (r.now - r.lead.bootAt) }

// Time returns the time of the latest input as a ready leader would stamp it; on other nodes, that of
// the last entry that they have applied.
func (r *Replica) Time() time.Duration {
	if r.lead.ready {
		return max(r.time(), r.table.Now())
	}
	return r.table.Now()
}

// followLeader notices changes of the leader.
func (r *Replica) followLeader() {
	status := r.node.BasicStatus()
	leader := status.Lead
	if leader != r.config.ID && r.contact.silentTicks >= r.config.ElectionTicks {
		leader = raft.None // only voters find this out themselves
	}
	if leader != r.lead.leader || status.GetTerm() != r.lead.term {
		lost := r.lead.queue
		if r.lead.leading {
			r.led = former{r.lead.term, r.lead.arrivals}
		}
		r.lead = leadership{
			leader: leader, term: status.GetTerm(), leading: leader == r.config.ID, arrivals: make(arrivals),
			acts: make(map[origin]Caller), matches: make(map[uint64]match),
		}
		for i := range lost {
			r.refuseQueued(&lost[i])
		}
		r.endSentCalls()
		r.restartReads()
		r.resendRefused()
	}
	r.sendWaiting()
}

// stillLeads reports whether raft agrees that this node leads: an earlier input of the same Together may have
// ended that. A raft that does not lead would pass a transfer, or a request for a read index, on to the node
// that does, and in another node's name.
func (r *Replica) stillLeads() bool {
	s := r.node.BasicStatus()
	return s.RaftState == raft.StateLeader && s.GetTerm() == r.lead.term
}

// refuseQueued gives a call back that this node did not propose before it lost its leadership.
func (r *Replica) refuseQueued(q *queued) {
	if q.origin.node == raft.None || q.denied {
		return // its own, or refused before
	}
	m := Message{
		From:        r.config.ID,
		To:          q.origin.node,
		Kind:        kindNotLeading,
		Incarnation: q.origin.incarnation,
		Call:        q.origin.call,
		Attempt:     q.attempt,
	}
	if m.To == m.From {
		r.receiveRefusal(&m)
	} else {
		r.out.Sends = append(r.out.Sends, m)
	}
}

// receiveCall queues a call of any node, or refuses it. It ignores copies of calls that it has received.
func (r *Replica) receiveCall(m *Message) {
	refusal := Message{
		From: m.To, To: m.From, Incarnation: m.Incarnation, Call: m.Call, Attempt: m.Attempt,
	}
	leads := r.lead.leading && m.Term == r.lead.term
	if m.From != r.config.ID && !r.firstArrival(m, leads) {
		return
	}
	q, rest, err := cutRequest(m.Request)
	switch {
	case !leads:
		refusal.Kind = kindNotLeading
	case len(r.lead.queue) >= r.config.MaxQueued:
		refusal.Kind = kindBusy
	case err != nil || len(rest) > 0:
		refusal.Kind, refusal.Text = kindInvalid, "the bytes of the call are damaged, or of another version"
	default:
		err = r.config.refuse(&q)
		if err == nil {
			err = cmp.Or(r.refuseForeign(m.From, &q), m.Caller.check())
		}
		if err != nil {
			refusal.Kind, refusal.Text = kindInvalid, err.Error()
		}
	}
	switch {
	case refusal.Kind == 0:
		q.caller = m.Caller
		r.lead.queue = append(r.lead.queue, queued{
			origin:  origin{m.From, m.Incarnation, m.Call},
			attempt: m.Attempt,
			request: q,
		})
	case refusal.To == refusal.From:
		r.receiveRefusal(&refusal)
	default:
		r.out.Sends = append(r.out.Sends, refusal)
	}
}

// firstArrival notes that a call of another node arrives, and reports whether it is certain that it never
// arrived before while this node led in its term. Otherwise it may be in the log, and is not refused.
func (r *Replica) firstArrival(m *Message, leads bool) bool {
	switch {
	case leads:
		return r.lead.arrivals.first(m)
	case r.led.term > 0 && m.Term == r.led.term:
		return r.led.arrivals.first(m)
	}
	return m.Term > max(r.led.term, r.began)
}

// mayPropose reports whether this node is a ready leader that keeps up with its own proposals.
func (r *Replica) mayPropose() bool {
	l := &r.lead
	return l.ready && !l.blocked && !l.settling && !r.changing() && l.inFlight < maxInFlight &&
		r.writes.bytes <= r.config.MaxUnwritten
}

// changing reports whether the configuration changes: from the proposal of a change until it is applied, and
// the disk of this node knows that it is committed. No entry follows it before. Otherwise a node that the
// change removes from the voters could have entries that this node loses with its power. Without the
// commit index, this node would then ask that node for its vote, and not get it.
func (r *Replica) changing() bool { return r.lead.changing || r.writes.commit < r.confAt }

// propose proposes what is queued, and a Pass if time has to pass.
func (r *Replica) propose() {
	l := &r.lead
	if l.hash != nil && r.mayPropose() {
		if r.node.Propose(l.hash) == nil {
			l.inFlight++
		}
		l.hash = nil
	}
	for r.mayPropose() && (l.inFlight == 0 || r.now >= l.proposed+batchTime) {
		at := r.time()
		batch, taken := r.batch(at)
		if len(batch) == len(newEntry(entryBatch)) {
			l.queue, taken = l.queue[taken:], 0 // nobody waits for these calls any more
			due, passes := r.passAt()
			if !passes || at < due {
				return
			}
			batch = appendCall(batch, origin{}, r.rules, &request{command: table.Command{At: at, Op: table.Pass}})
		}
		if r.node.Propose(batch) != nil {
			l.blocked = true // a transfer of the leadership is under way
			r.dropBatch(l.queue[:taken])
			return
		}
		l.settling = taken > 0 && changesPolicy(&l.queue[taken-1])
		l.queue = l.queue[taken:]
		l.inFlight++
		l.stamped, l.proposed = at, r.now
	}
}

// batch returns the data of an entry with the first calls of the queue, and how many it has taken.
// Calls of this node that were cancelled, or whose deadline has passed, are left out, and so are calls
// that the policy denies. A change of the policy is the last call of its batch, and nothing is decided
// before it is applied: so it takes effect at one position of the log.
func (r *Replica) batch(at time.Duration) (data []byte, taken int) {
	data = newEntry(entryBatch)
	for i := range r.lead.queue {
		q := &r.lead.queue[i]
		if len(data) > r.config.MaxEntry {
			break
		}
		taken++
		if q.origin.node == r.config.ID && r.calls.pending[q.origin.call] == nil {
			continue
		}
		if !r.permit(q) {
			continue
		}
		q.request.command.At = at
		if isAct(&q.request.command) {
			r.lead.acts[q.origin] = q.request.caller
		}
		data = appendCall(data, q.origin, r.rules, &q.request)
		if changesPolicy(q) {
			break
		}
	}
	return data, taken
}

// passAt returns the time at which the leader has to propose a Pass; false if it has not:
//
//	passAt = min(next instant of the table, time of the last entry + RecordEvery)
func (r *Replica) passAt() (time.Duration, bool) {
	due, falls := r.table.Next()
	if !falls || r.lead.stamped >= due { // an entry on its way brings the table beyond due
		return 0, false
	}
	return min(due, r.lead.stamped+r.config.RecordEvery), true
}

// Next returns the boot time at which the caller must call Wake; false if no time is known: then
// other inputs come first.
func (r *Replica) Next() (time.Duration, bool) {
	if r.failed != nil || !r.mayPropose() {
		return 0, false
	}
	l := &r.lead
	due, proposes := r.passAt()
	at := l.bootAt + (due - l.tableAt)
	if len(l.queue) > 0 {
		at, proposes = r.now, true
	}
	if l.inFlight > 0 {
		at = max(at, l.proposed+batchTime)
	}
	return at - r.back, proposes
}

// appliedAsLeader notices that an entry of this leader was applied. The first one makes it ready.
func (r *Replica) appliedAsLeader(e *pb.Entry) {
	l := &r.lead
	switch {
	case !l.leading || e.GetTerm() != l.term:
	case !l.ready:
		l.ready, l.tableAt, l.bootAt, l.stamped = true, r.table.Now(), r.now, r.table.Now()
	default:
		l.inFlight--
		l.settling = l.settling && l.inFlight > 0
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 { // raft empties a change that it refuses
			l.changing = false
		}
	}
}
