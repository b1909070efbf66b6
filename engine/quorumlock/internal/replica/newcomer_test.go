package replica

import (
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A new node gets the log as a snapshot, which may have the effect of calls that the node has made
// meanwhile. They are answered as unknown at once, not at their deadlines.
func TestSnapshotEndsTheCallsThatItMayHave(t *testing.T) {
	l := newLone(t)
	l.elect()
	if err := l.Change(l.clock, voters.Change{Kind: voters.Add, ID: 2}); err != nil {
		t.Fatal(err)
	}
	c := loneConfig(2)
	c.ID = 2
	added, err := New(c, State{}, l.clock)
	if err != nil {
		t.Fatal(err)
	}
	var snapshot *Message // the latest that has not arrived
	var answers []Answer  // of the new node
	exchange := func() {
		for busy := true; busy; {
			busy = false
			for _, from := range []*Replica{l.Replica, added} {
				out := from.Output()
				for _, w := range out.Writes {
					from.Persisted(l.clock, w.Number)
					busy = true
				}
				if from == added {
					answers = append(answers, out.Answers...)
				}
				for i := range out.Sends {
					m := out.Sends[i]
					to := map[uint64]*Replica{1: l.Replica, 2: added}[m.To]
					if m.Raft.GetType() == pb.MsgSnap {
						snapshot = &m
					} else if err := to.Receive(l.clock, m); err != nil {
						t.Fatal(err)
					}
					busy = true
				}
			}
		}
	}
	exchange()
	for range 3 {
		l.clock += tick
		l.Tick(l.clock)
		added.Tick(l.clock)
		exchange()
	}
	if snapshot == nil || added.Status().Leader != 1 {
		t.Fatalf("the new node knows %+v, and has got no snapshot", added.Status())
	}
	id := added.Call(l.clock, attach("ann"))
	exchange()
	if !l.Table().Open("ann") || len(answers) > 0 {
		t.Fatalf("the leader has not made the call, or the new node has answered it: %v", answers)
	}
	m := *snapshot
	m.Raft.Snapshot, err = l.storage.Snapshot() // as raft sends it again
	if err != nil {
		t.Fatal(err)
	}
	if err := added.Receive(l.clock, m); err != nil {
		t.Fatal(err)
	}
	exchange()
	if len(answers) != 1 || answers[0].Call != id || !errors.Is(answers[0].Err, ErrUnknown) ||
		!errors.Is(answers[0].Err, lockkeeper.ErrUnavailable) {
		t.Errorf("the answers are %+v", answers)
	}
	if !added.Table().Open("ann") {
		t.Error("the new node has not what the snapshot has")
	}
}
