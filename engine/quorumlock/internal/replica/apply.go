package replica

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/lockkeeper/lockkeeper/table"
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
	case pb.EntryConfChange, pb.EntryConfChangeV2:
		err = r.applyConfChange(e)
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
	switch data[0] {
	case entryBatch:
		return r.applyBatch(e.GetIndex(), data[1:])
	case entryHash:
		index, sum, err := readHash(data[1:])
		if err != nil {
			return err
		}
		return r.hashes.compare(index, sum)
	}
	return fmt.Errorf("data of kind %d is unknown: run a later version", data[0])
}

func (r *Replica) applyBatch(index uint64, batch []byte) error {
	for len(batch) > 0 {
		o, c, rest, err := cutCall(batch)
		if err != nil {
			return err
		}
		batch = rest
		reply, refused := r.table.Step(&c)
		if r.settings.Applied != nil {
			r.settings.Applied(index, r.table, &c)
		}
		if o.node == r.settings.ID && o.incarnation == r.settings.Incarnation {
			r.answer(o.call, reply, refused)
		}
	}
	return nil
}

func (r *Replica) applyConfChange(e *pb.Entry) error {
	var change pb.ConfChangeI
	var err error
	if e.GetType() == pb.EntryConfChange {
		c := &pb.ConfChange{}
		change, err = c, proto.Unmarshal(e.GetData(), c)
	} else {
		c := &pb.ConfChangeV2{}
		change, err = c, proto.Unmarshal(e.GetData(), c)
	}
	if err != nil {
		return err
	}
	r.conf = r.node.ApplyConfChange(change)
	return nil
}

// answer ends a call of this node with the reply of the table. The call may have ended before.
func (r *Replica) answer(id CallID, reply table.Reply, err error) {
	if r.calls.pending[id] == nil {
		return
	}
	delete(r.calls.pending, id)
	r.out.Answers = append(r.out.Answers, Answer{Call: id, Reply: reply, Err: err})
}
