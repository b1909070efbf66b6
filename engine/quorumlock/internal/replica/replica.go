package replica

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Config is what a Replica does not decide itself. All nodes of a cluster must have the same
// SnapshotEvery.
type Config struct {
	ID          uint64                // of this node in the configuration of the log; never used by another node or log
	Incarnation uint64                // a random number, new with every start: answers go to the process that has the call
	Guarantees  lockkeeper.Guarantees // the features that calls may use
	Rules       Rules                 // of this program; without Latest: those of package table

	HeartbeatTicks int // a leader sends heartbeats so often; at least 1
	ElectionTicks  int // a node without a leader for so long wants to lead; several times HeartbeatTicks

	CallTimeout time.Duration // a call without an answer for so long is answered as unknown
	RecordEvery time.Duration // while something falls due by time, the log records the time so often

	SnapshotEvery uint64 // entries from one snapshot to the next
	KeepEntries   uint64 // entries before a snapshot that stay in memory, for nodes that are behind

	MaxQueued    int // calls that wait at this node, and calls that wait at a leader
	MaxEntry     int // bytes of a batch, unless one call is larger
	MaxUnwritten int // bytes of entries that are not durable yet, above which the node takes no more

	// Applied is called after each command that the node applies, also within New. Until it returns,
	// Table.Events has the events of the command. It must not change the table. It may be nil.
	Applied func(Applied)

	// Decider returns what decides under a policy, the value of the setting PolicyKey. Only a ready leader
	// asks it. With nil, a policy denies everything.
	Decider func(policy []byte) Decider

	// Audit is called for each Record, while this node leads. It must not wait, must not call a method of
	// the replica, and must not keep what a Record points to. It may be nil.
	Audit func(Record)

	// Changed is called after a setting has changed, by the entry with that index or by a snapshot that
	// ends there, also within New: from there on, Replica.Setting returns s. Who begins with no setting and
	// applies all changes has all settings. It may be nil.
	Changed func(index uint64, s Setting)
}

// Applied is a command of an entry of the log, as this node has applied it.
type Applied struct {
	Index   uint64 // of the entry
	Table   *table.Table
	Command *table.Command
	Answer  Answer // Call is 0 unless it is a call of this process, which may have ended before
}

func (c *Config) check() error {
	switch {
	case c.ID == 0 || c.Incarnation == 0:
		return errors.New("a replica needs an id and an incarnation above 0")
	case c.HeartbeatTicks < 1 || c.ElectionTicks <= c.HeartbeatTicks:
		return fmt.Errorf("heartbeats every %d ticks, elections after %d: want at least 1, and more for elections",
			c.HeartbeatTicks, c.ElectionTicks)
	case c.CallTimeout <= 0 || c.RecordEvery <= 0:
		return errors.New("a replica needs a call timeout and a record interval above 0")
	case c.SnapshotEvery == 0 || c.MaxQueued <= 0 || c.MaxEntry <= 0 || c.MaxUnwritten <= 0:
		return errors.New("a replica needs limits above 0: SnapshotEvery, MaxQueued, MaxEntry, MaxUnwritten")
	}
	return nil
}

// A Replica is one node. It is not safe for concurrent use. The methods with a parameter now are its
// inputs; now is the boot clock of the machine. The caller takes the Output after each of them.
type Replica struct {
	config  Config
	node    *raft.RawNode
	storage storage // what is durable
	replicated
	applied  uint64        // index of the last entry in the replicated state
	applying bool          // an entry is half applied
	boot     time.Duration // the boot clock as the latest input brought it
	back     time.Duration // by how much the boot clock has gone back, in all
	now      time.Duration // boot + back: never goes back
	ticks    uint64

	contact contact
	calls   calls
	reads   reads
	lead    leadership
	led     former
	began   uint64 // the term in which this process began: the one before it may have led until then
	writes  writes
	hashes  hashes
	conf    *pb.ConfState // the configuration, as applied
	confAt  uint64        // index of the entry that made it; 0 if a snapshot did
	report  CallID        // the call that reports the rules of this program; 0: none
	failed  error         // why this node has stopped; nil while it runs
	open    bool          // inputs of one Together are being made
	out     Output
}

// An Output is what the caller has to do after an input. Nothing in it changes later.
type Output struct {
	Sends   []Message // any order, any number of them may get lost
	Writes  []Write   // in this order; see Replica.Persisted
	Answers []Answer
}

// New returns the replica of a node that begins with what its disk has. The state belongs to the
// replica from then on. An error says what is wrong with the configuration or the state; the node must
// then not run under this id.
func New(c Config, state State, now time.Duration) (*Replica, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Rules.Latest == 0 {
		c.Rules = tableRules
	}
	r := &Replica{config: c, boot: now, now: now, began: state.HardState.GetTerm()}
	r.storage = storage{raft.NewMemoryStorage(), r}
	if err := r.load(&state); err != nil {
		return nil, err
	}
	var err error
	r.protect(func() {
		r.node, err = raft.NewRawNode(&raft.Config{
			ID:                        c.ID,
			ElectionTick:              c.ElectionTicks,
			HeartbeatTick:             c.HeartbeatTicks,
			Storage:                   r.storage,
			Applied:                   r.applied,
			AsyncStorageWrites:        true,
			MaxSizePerMsg:             maxAppendBytes,
			MaxCommittedSizePerReady:  maxAppendBytes,
			MaxInflightMsgs:           maxInflightAppends,
			CheckQuorum:               true,
			PreVote:                   true,
			DisableProposalForwarding: true,
			StepDownOnRemoval:         true,
			Logger:                    logger{},
		})
	})
	if err = errors.Join(err, r.failed); err != nil {
		return nil, err
	}
	r.calls.pending = make(map[CallID]*call)
	r.contact.received, r.contact.snapshots = make(map[uint64]receipt), make(map[uint64]uint64)
	r.contact.silentTicks = c.ElectionTicks // no contact before the first message
	r.settle()
	return r, nil
}

const (
	maxAppendBytes     = 1 << 20 // of the entries in one message, unless one entry is larger
	maxInflightAppends = 64      // appends on their way to one node
)

// Output returns what the inputs so far ask for, and forgets it.
func (r *Replica) Output() Output {
	out := r.out
	r.out = Output{}
	return out
}

// Table returns the table. The caller must not change it, and must not use it after the next input.
func (r *Replica) Table() *table.Table { return r.table }

// Together makes several inputs one: do makes them, and the replica answers to all of them at once. So
// calls that come together share an entry of the log, and entries a write.
func (r *Replica) Together(do func()) {
	r.open = true
	do()
	r.open = false
	r.settle()
}

// Tick is the input that drives heartbeats, elections and deadlines. The caller ticks at a steady
// rate; ticks that fall into a pause of the process need not be made up for.
func (r *Replica) Tick(now time.Duration) {
	if !r.begin(now) {
		return
	}
	r.ticks++
	r.contact.silentTicks++
	r.lead.blocked = false
	r.tickRaft()
	r.protect(r.noteMatches)
	r.expireCalls()
	r.retryReads()
	r.protect(r.resendSnapshots)
	r.raiseRules()
	r.settle()
	r.reportRules()
}

// Wake is the input for the instant that Next returned.
func (r *Replica) Wake(now time.Duration) {
	if r.begin(now) {
		r.settle()
	}
}

// begin begins an input. If the boot clock goes back, time goes on from where it was.
func (r *Replica) begin(boot time.Duration) (runs bool) {
	r.back += max(r.boot-boot, 0)
	r.boot = boot
	r.now = boot + r.back
	return r.failed == nil
}

// settle ends an input: it does all that can be done until raft has nothing more to say.
func (r *Replica) settle() {
	for r.failed == nil && !r.open {
		r.followLeader()
		r.protect(r.propose)
		r.protect(r.requestReads)
		if r.failed != nil || !r.node.HasReady() {
			return
		}
		r.protect(func() { r.handle(r.node.Ready()) })
	}
}

func (r *Replica) handle(ready raft.Ready) {
	r.resolveReads(ready.ReadStates)
	for _, m := range ready.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			r.write(m)
		case raft.LocalApplyThread:
			for _, e := range m.GetEntries() {
				r.apply(e)
			}
			r.respond(m.GetResponses())
		default:
			r.sendRaft(m)
		}
	}
}

// respond delivers messages that waited for a local write.
func (r *Replica) respond(messages []*pb.Message) {
	for _, m := range messages {
		if m.GetTo() != r.config.ID {
			r.sendRaft(m)
		} else if err := r.node.Step(m); err != nil {
			r.fail(fmt.Errorf("raft refused the answer of its own disk: %w", err))
		}
	}
}

func (r *Replica) sendRaft(m *pb.Message) {
	if m.GetType() == pb.MsgSnap {
		r.contact.snapshots[m.GetTo()] = r.ticks
	}
	r.out.Sends = append(r.out.Sends, Message{From: r.config.ID, To: m.GetTo(), Raft: m})
}

// ErrStopped is the cause of all errors of a node that stopped because it found its log, its table
// or its disk damaged. It must not go on under its id: a copy of the cluster's state replaces it. Only
// after ErrVersion, a later version of the program can go on under the id.
var ErrStopped = errors.New("this node has stopped")

// Failed is the input that a write can't be made durable, for the reason err. The node stops.
func (r *Replica) Failed(now time.Duration, err error) {
	if r.begin(now) {
		r.fail(err)
	}
}

// fail stops the node: from now on it sends and writes nothing, and refuses all calls.
func (r *Replica) fail(err error) {
	if r.failed != nil {
		return
	}
	r.failed = fmt.Errorf("%w: %w", ErrStopped, err)
	r.out.Sends, r.out.Writes = nil, nil
	r.endAllCalls(r.failed)
}

// protect runs a step of raft. If raft finds its own invariants broken, the node stops.
func (r *Replica) protect(step func()) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case invariantError:
			r.fail(p)
		default:
			panic(p)
		}
	}()
	step()
}
