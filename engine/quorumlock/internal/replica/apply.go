package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// apply applies a committed entry. All nodes apply the same entries in the same order.
func (r *Replica) apply(e *pb.Entry) {
	if r.failed != nil || e.GetIndex() <= r.applied {
		return
	}
	r.applying = true
	var err error
	switch e.GetType() {
	case pb.EntryNormal:
		err = r.applyData(e)
	case pb.EntryConfChange:
		err = r.applyConfChange(e)
	default:
		err = fmt.Errorf("%w: entries of kind %s are unknown", ErrVersion, e.GetType())
	}
	r.applying = false
	if err != nil {
		r.fail(fmt.Errorf("entry %d of term %d can't be applied: %w", e.GetIndex(), e.GetTerm(), err))
		return
	}
	r.applied = e.GetIndex()
	r.appliedAsLeader(e)
	r.snapshot(position{e.GetIndex(), e.GetTerm()})
}

func (r *Replica) applyData(e *pb.Entry) error {
	data := e.GetData()
	if len(data) == 0 {
		return nil
	}
	kind, data, err := cutKind(data)
	if err != nil {
		return err
	}
	switch kind {
	case entryBatch:
		return r.applyBatch(e.GetIndex(), data)
	case entryHash:
		index, sum, err := readHash(data)
		if err != nil {
			return err
		}
		return r.hashes.compare(index, sum)
	}
	return fmt.Errorf("%w: data of kind %d is unknown", ErrVersion, kind)
}

func (r *Replica) applyBatch(index uint64, batch []byte) error {
	for len(batch) > 0 {
		o, q, rest, err := cutCall(batch)
		if err != nil {
			return err
		}
		batch = rest
		a, mine := Answer{Call: o.call}, o.node == r.config.ID && o.incarnation == r.config.Incarnation
		if !mine {
			a.Call = 0
		}
		if q.setting != nil {
			if a.Revision, a.Err = r.applySetting(index, q.setting); errors.Is(a.Err, ErrVersion) {
				return a.Err
			}
		} else {
			if q.rules > r.rules {
				return fmt.Errorf("a command is written under rules %d, the cluster runs under rules %d", q.rules, r.rules)
			}
			a.Reply, a.Err = r.config.Rules.Step(r.rules, r.table, &q.command)
			r.appliedCommand(index, o, &q.command, a.Err)
			if r.config.Applied != nil {
				r.config.Applied(Applied{Index: index, Table: r.table, Command: &q.command, Answer: a})
			}
		}
		if mine {
			r.answer(a)
		}
	}
	return nil
}

// applySetting makes a change of a setting, unless all nodes refuse it. It returns the revision that
// the setting has then.
func (r *Replica) applySetting(index uint64, s *Setting) (uint64, error) {
	before := r.settings.get(s.Key).Revision
	err := r.settings.refuse(*s)
	if err == nil {
		err = r.refuseOwn(s)
	}
	if err != nil {
		return before, err
	}
	after := r.changeSetting(index, s)
	if s.Key == rulesKey {
		r.rules = versionOf(after.Value)
		err = r.config.Rules.check(r.rules)
	}
	return after.Revision, err
}

// changeSetting makes a change of a setting that nobody refuses.
func (r *Replica) changeSetting(index uint64, s *Setting) Setting {
	before := r.settings.get(s.Key).Revision
	after := r.settings.put(s)
	if after.Revision != before {
		r.audit(Record{Index: index, Setting: &after})
	}
	if after.Revision != before && r.config.Changed != nil {
		r.config.Changed(index, after)
	}
	return after
}

// applyConfChange changes the configuration and the settings that belong to the change, or neither,
// on all nodes alike. It refuses a change that raft would panic about.
func (r *Replica) applyConfChange(e *pb.Entry) error {
	c := &pb.ConfChange{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return err
	}
	switch c.GetType() {
	case pb.ConfChangeAddNode, pb.ConfChangeAddLearnerNode, pb.ConfChangeRemoveNode:
	default:
		return fmt.Errorf("%w: a change of the configuration of kind %d is unknown", ErrVersion, c.GetType())
	}
	var with []Setting
	for rest := c.GetContext(); len(rest) > 0; {
		var s Setting
		var err error
		if s, rest, err = cutSetting(rest); err != nil {
			return fmt.Errorf("a setting of a change of the configuration: %w", err)
		}
		with = append(with, s)
	}
	if r.refuseConfChange(c, with) != nil {
		c.NodeId = new(uint64(raft.None)) // raft then notes that this change is none
		with = nil
	}
	r.conf, r.confAt = r.node.ApplyConfChange(c), e.GetIndex()
	r.flushCommit()
	if id := c.GetNodeId(); id != raft.None {
		r.audit(Record{Index: e.GetIndex(), Change: &voters.Change{ID: id, Kind: kindOf(c.GetType())}})
	}
	with = append(with, r.forgetReport(c)...)
	for i := range with {
		r.changeSetting(e.GetIndex(), &with[i])
	}
	return nil
}

// refuseConfChange returns why a change of the configuration can't be made now, with all of its
// settings; nil if it can.
func (r *Replica) refuseConfChange(c *pb.ConfChange, with []Setting) error {
	if c.GetType() != pb.ConfChangeAddNode && slices.Equal(r.conf.GetVoters(), []uint64{c.GetNodeId()}) {
		return errors.New("it is the only voter")
	}
	if c.GetType() != pb.ConfChangeRemoveNode && len(r.settings.get(voters.ExpelledKey(c.GetNodeId())).Value) > 0 {
		return errors.New("it is expelled")
	}
	return r.settings.refuse(with...)
}

// answer ends a call of this node. The call may have ended before.
func (r *Replica) answer(a Answer) {
	if r.calls.pending[a.Call] == nil {
		return
	}
	delete(r.calls.pending, a.Call)
	if a.Call == r.report {
		r.report = 0
		return
	}
	r.out.Answers = append(r.out.Answers, a)
}
