package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
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
		err = errors.New("it is of a kind that no leader of this version proposes: run a later version")
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
	return fmt.Errorf("data of kind %d is unknown: run a later version", kind)
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
			a.Revision, a.Err = r.applySetting(index, q.setting)
		} else {
			a.Reply, a.Err = r.table.Step(&q.command)
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
	if err := r.settings.refuse(s); err != nil {
		return before, err
	}
	after := r.settings.put(s)
	if after.Revision != before && r.config.Changed != nil {
		r.config.Changed(index, after)
	}
	return after.Revision, nil
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
		return fmt.Errorf("a change of the configuration of kind %d is unknown: run a later version", c.GetType())
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
	r.conf = r.node.ApplyConfChange(c)
	for i := range with {
		if _, err := r.applySetting(e.GetIndex(), &with[i]); err != nil {
			return err
		}
	}
	return nil
}

// refuseConfChange returns why a change of the configuration can't be made now, with all of its
// settings; nil if it can.
func (r *Replica) refuseConfChange(c *pb.ConfChange, with []Setting) error {
	if c.GetType() != pb.ConfChangeAddNode && slices.Equal(r.conf.GetVoters(), []uint64{c.GetNodeId()}) {
		return errors.New("it is the only voter")
	}
	scratch := r.settings.clone()
	for i := range with {
		if err := scratch.refuse(&with[i]); err != nil {
			return err
		}
		scratch.put(&with[i])
	}
	return nil
}

// answer ends a call of this node. The call may have ended before.
func (r *Replica) answer(a Answer) {
	if r.calls.pending[a.Call] == nil {
		return
	}
	delete(r.calls.pending, a.Call)
	r.out.Answers = append(r.out.Answers, a)
}
