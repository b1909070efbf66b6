package replica

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Whatever a node sends, it makes no other node panic: the message is refused, ignored or taken, or
// raft finds the log damaged and the node stops.
func FuzzReceive(f *testing.F) {
	term, index := uint64(3), uint64(40)
	message := func(kind pb.MessageType, change func(m *pb.Message)) {
		m := &pb.Message{Type: kind.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &term}
		change(m)
		b, err := (&Message{Raft: m}).MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	message(pb.MsgHeartbeat, func(m *pb.Message) { m.Commit = &index })
	message(pb.MsgVote, func(m *pb.Message) { m.Index, m.LogTerm = &index, &term })
	message(pb.MsgAppResp, func(m *pb.Message) { m.Index = &index })
	message(pb.MsgSnap, func(m *pb.Message) { m.Snapshot = found(f, 1, 2).Snapshot })
	message(pb.MsgApp, func(m *pb.Message) {
		m.Index, m.LogTerm = new(uint64(1)), new(uint64(1))
		m.Entries = []*pb.Entry{{Index: new(uint64(2)), Term: &term, Data: append(newEntry(entryBatch), 0, 0, 0)}}
	})
	message(pb.MsgReadIndex, func(m *pb.Message) { m.Entries = []*pb.Entry{{Data: []byte{1}}} })
	call, err := (&Message{Kind: kindCall, Incarnation: 1, Call: 1, Attempt: 1, Request: []byte{1, 2}}).MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(call)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := Message{From: 2, To: 1}
		if m.UnmarshalBinary(b) != nil {
			return
		}
		r, err := New(loneConfig(1), found(t, 1, 2), 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Output()
		_ = r.Receive(time.Second, m)
		for _, w := range r.Output().Writes {
			r.Persisted(time.Second, w.Number)
		}
		r.Tick(2 * time.Second)
	})
}
