package replica

import (
	"reflect"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

func TestMessagesAreReadAsTheyAreWritten(t *testing.T) {
	for _, m := range []Message{
		{Kind: kindCall, Incarnation: 1 << 60, Call: 7, Attempt: 2, Term: 5, Request: []byte{1, 2, 3}},
		{Kind: kindCall, Call: 7, Caller: Caller{"ci", "10.0.0.9:5", true}, Request: []byte{1}},
		{Kind: kindNotLeading, Incarnation: 3, Call: 1, Attempt: 1},
		{Kind: kindInvalid, Incarnation: 3, Call: 1, Attempt: 1, Text: "why"},
	} {
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var got Message
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v was read as %+v, %v", m, got, err)
		}
	}
	for _, b := range [][]byte{nil, {byte(kinds)}, {byte(kindCall)}, {byte(kindCall), 1, 0x80}, {0, 0xff}} {
		if err := new(Message).UnmarshalBinary(b); err == nil {
			t.Errorf("%x is a message", b)
		}
	}
}

func TestMessagesThatNoNodeSendsAreRefused(t *testing.T) {
	entry := func(index, term uint64) *pb.Entry { return &pb.Entry{Index: &index, Term: &term} }
	proper := func(kind pb.MessageType, change func(m *pb.Message)) *pb.Message {
		m := &pb.Message{Type: kind.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(5))}
		change(m)
		return m
	}
	appended := func(entries ...*pb.Entry) *pb.Message {
		return proper(pb.MsgApp, func(m *pb.Message) {
			m.Index, m.LogTerm, m.Entries = new(uint64(10)), new(uint64(4)), entries
		})
	}
	nothing := func(*pb.Message) {}
	l := newLone(t)
	for name, m := range map[string]*pb.Message{
		"a proposal":             proper(pb.MsgProp, func(m *pb.Message) { m.Entries = []*pb.Entry{{Data: []byte{1}}} }),
		"a call for an election": proper(pb.MsgHup, nothing),
		"an answer of a disk":    proper(pb.MsgStorageAppendResp, nothing),
		"of another node":        proper(pb.MsgHeartbeat, func(m *pb.Message) { m.From = new(uint64(3)) }),
		"to another node":        proper(pb.MsgHeartbeat, func(m *pb.Message) { m.To = new(uint64(3)) }),
		"without a term":         proper(pb.MsgHeartbeat, func(m *pb.Message) { m.Term = nil }),
		"with responses":         proper(pb.MsgHeartbeat, func(m *pb.Message) { m.Responses = []*pb.Message{{}} }),
		"a read of nothing":      proper(pb.MsgReadIndex, nothing),
		"no snapshot":            proper(pb.MsgSnap, nothing),
		"a damaged snapshot": proper(pb.MsgSnap, func(m *pb.Message) {
			m.Snapshot = found(t, 1).Snapshot
			m.Snapshot.Data = append(m.Snapshot.Data, 0)
		}),
		"entries with a gap":        appended(entry(11, 4), entry(13, 4)),
		"entries not adjoining":     appended(entry(12, 4)),
		"terms that fall":           appended(entry(11, 5), entry(12, 4)),
		"a term after the sender's": appended(entry(11, 6)),
	} {
		before := l.Status()
		err := l.Receive(l.clock, Message{From: 2, To: 1, Raft: m})
		if after := l.Status(); err == nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: error %v, status %+v, before %+v", name, err, after, before)
		}
	}
	if err := l.Receive(l.clock, Message{From: 2, To: 3, Kind: kindCall}); err == nil {
		t.Error("a call to another node was received")
	}
}

// snapshotFrom returns the message with the snapshot of a state.
func snapshotFrom(node uint64, s State) Message {
	return Message{From: node, To: 1, Raft: &pb.Message{
		Type: pb.MsgSnap.Enum(), From: &node, To: new(uint64(1)), Term: new(uint64(5)), Snapshot: s.Snapshot,
	}}
}
