package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// contact is what this node has received from others.
type contact struct {
	silentTicks int // ticks since the leader sent something
	received    map[uint64]receipt
	snapshots   map[uint64]uint64 // ticks when the latest snapshot was sent to a node
}

// A receipt is the time at which something last came.
type receipt struct {
	ticks uint64
	at    time.Duration
}

// note notes a message of raft.
func (c *contact) note(r *Replica, m *pb.Message) {
	c.received[m.GetFrom()] = receipt{r.ticks, r.now}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgSnap, pb.MsgHeartbeat:
		if m.GetTerm() >= r.lead.term {
			c.silentTicks = 0
		}
	}
}

// snapshotPatience is the number of election timeouts after which a snapshot counts as lost, unless
// its receiver has answered that it has it.
const snapshotPatience = 5

// resendSnapshots lets raft send again the snapshots that may be lost. Until then raft sends their
// receivers nothing else.
func (r *Replica) resendSnapshots() {
	for id, sent := range r.contact.snapshots { // order does not matter: each node by itself
		if r.ticks-sent >= uint64(snapshotPatience*r.config.ElectionTicks) {
			delete(r.contact.snapshots, id)
			r.node.ReportSnapshot(id, raft.SnapshotFailure)
		}
	}
}

// A Status is what people and sessions may know of a node. A node whose id is among neither the
// voters nor the learners was not added yet, or was removed.
type Status struct {
	ID      uint64
	Term    uint64
	Leader  uint64 // 0: none
	Ready   bool   // this node leads, and makes calls
	Contact bool   // a leader and this node are in contact; else no call of this node can be made now
	Applied uint64 // index of the last entry in the state
	Rules   uint64 // version of the rules that the cluster runs under; 0: this node does not know it yet
	Failed  error  // matches ErrStopped: why this node has stopped; nil while it runs
	Voters  []uint64
	// Learners receive the log and do not vote.
	Learners []uint64
}

// Status returns the status of this node.
func (r *Replica) Status() Status {
	return Status{
		ID:       r.config.ID,
		Term:     r.lead.term,
		Leader:   r.lead.leader,
		Ready:    r.lead.ready && r.failed == nil,
		Contact:  r.lead.leader != 0 && r.failed == nil,
		Applied:  r.applied,
		Rules:    r.rules,
		Failed:   r.failed,
		Voters:   slices.Clone(r.conf.GetVoters()),
		Learners: slices.Clone(r.conf.GetLearners()),
	}
}

// caughtUp is by how many entries a node that has caught up may be behind the leader's log.
const caughtUp = 100

// A Peer is a member of the configuration as the leader sees it, for package voters.
type Peer struct {
	ID       uint64
	Role     voters.Role
	Silent   time.Duration // for how long the leader has received nothing; 0 within an election timeout
	CaughtUp bool          // it has nearly all of the leader's log, and goes on storing it
}

// Peers returns the members of the configuration, by id; none if this node does not lead.
func (r *Replica) Peers() (peers []Peer) {
	if !r.lead.leading || r.failed != nil || !r.stillLeads() {
		return nil
	}
	r.node.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		peer := Peer{ID: id, Role: voters.Voter}
		peer.CaughtUp = p.State == tracker.StateReplicate && p.Match+caughtUp >= r.applied && r.keepsUp(id, p.Match)
		if kind == raft.ProgressTypeLearner {
			peer.Role = voters.Learner
		}
		got := r.contact.received[id]
		if id != r.config.ID && r.ticks-got.ticks >= uint64(r.config.ElectionTicks) {
			peer.Silent = max(r.now-max(got.at, r.lead.bootAt), 1)
		}
		peers = append(peers, peer)
	})
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// ErrChange is the cause of a refused change of the configuration.
var ErrChange = errors.New("the configuration can't be changed so now")

// Change is the input of a change of the configuration, and of settings that change with it: all of
// them or nothing. So a node never is a member without the settings that say who it is, nor the other
// way round. Nil means that it was proposed; it has happened when Status shows it. The leader may lose
// it, and it does not happen if one of the settings changes before. An error matches ErrChange: this
// node is no ready leader, another change is on its way, or the change does not fit the configuration
// or the settings, for the reason that Put would state.
func (r *Replica) Change(now time.Duration, c voters.Change, with ...Setting) error {
	if !r.begin(now) || !r.lead.ready {
		return fmt.Errorf("%w: this node does not lead", ErrChange)
	}
	change := &pb.ConfChange{NodeId: new(c.ID)}
	isVoter, isLearner := slices.Contains(r.conf.GetVoters(), c.ID), slices.Contains(r.conf.GetLearners(), c.ID)
	switch {
	case c.ID == 0:
		return fmt.Errorf("%w: 0 is no id", ErrChange)
	case c.Kind == voters.Add && !isVoter && !isLearner, c.Kind == voters.Demote && isVoter && c.ID != r.config.ID:
		change.Type = pb.ConfChangeAddLearnerNode.Enum()
	case c.Kind == voters.Promote && isLearner:
		change.Type = pb.ConfChangeAddNode.Enum()
	case c.Kind == voters.Remove && (isVoter || isLearner) && c.ID != r.config.ID:
		change.Type = pb.ConfChangeRemoveNode.Enum()
	default:
		return fmt.Errorf("%w: %s node %d: the voters are %v, the learners %v, the leader is %d", ErrChange, c.Kind, c.ID,
			r.conf.GetVoters(), r.conf.GetLearners(), r.config.ID)
	}
	if r.changing() {
		return fmt.Errorf("%w: another change is on its way", ErrChange)
	}
	if err := r.refuseConfChange(change, with); err != nil {
		return fmt.Errorf("%w: %s node %d: %w", ErrChange, c.Kind, c.ID, err)
	}
	for i := range with {
		if err := refuseReserved(with[i].Key); err != nil {
			return fmt.Errorf("%w: %w", ErrChange, err)
		}
		change.Context = appendSetting(change.Context, &with[i])
	}
	err := fmt.Errorf("%w: raft refused it", ErrChange)
	r.protect(func() {
		if r.node.ProposeConfChange(change) == nil {
			r.lead.inFlight++
			r.lead.changing, err = true, nil
		}
	})
	r.settle()
	return err
}

// Transfer is the input that the leader, ready or not, should transfer its leadership to another voter.
// Until that has happened, or has failed for an election timeout, it makes no calls.
func (r *Replica) Transfer(now time.Duration, to uint64) {
	if r.begin(now) && r.lead.leading && r.stillLeads() && slices.Contains(r.conf.GetVoters(), to) && to != r.config.ID {
		r.protect(func() { r.node.TransferLeader(to) })
		r.settle()
	}
}
