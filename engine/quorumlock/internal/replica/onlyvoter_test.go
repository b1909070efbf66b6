package replica

import (
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A pair is two nodes whose messages always arrive. The disk of the second one always syncs at once.
type pair struct {
	*lone
	other   *Replica
	arrived []*pb.Entry // at the second node
}

func newPair(t *testing.T) *pair {
	p := &pair{lone: newLone(t)}
	p.elect()
	c := loneConfig(2)
	c.ID = 2
	var err error
	if p.other, err = New(c, State{}, p.clock); err != nil {
		t.Fatal(err)
	}
	return p
}

// exchange delivers everything. The first node's disk syncs what syncs says.
func (p *pair) exchange(syncs func(*Write) bool) {
	p.Helper()
	for busy := true; busy; {
		busy = false
		var sends []Message
		out := p.Output()
		p.unsaved, sends = append(p.unsaved, out.Writes...), append(sends, out.Sends...)
		for len(p.unsaved) > 0 && syncs(&p.unsaved[0]) {
			w := p.unsaved[0]
			p.unsaved, busy = p.unsaved[1:], true
			p.state.apply(&w)
			p.Persisted(p.clock, w.Number)
		}
		out = p.other.Output()
		sends = append(sends, out.Sends...)
		for _, w := range out.Writes {
			p.other.Persisted(p.clock, w.Number)
			p.arrived, busy = append(p.arrived, w.Entries...), true
		}
		for _, m := range sends {
			to := map[uint64]*Replica{1: p.Replica, 2: p.other}[m.To]
			if err := to.Receive(p.clock, m); err != nil {
				p.Fatal(err)
			}
			busy = true
		}
	}
}

func (p *pair) tick(syncs func(*Write) bool) {
	p.Helper()
	p.clock += tick
	p.Tick(p.clock)
	p.other.Tick(p.clock)
	p.exchange(syncs)
}

func (p *pair) change(kind voters.ChangeKind, syncs func(*Write) bool) {
	p.Helper()
	if err := p.Change(p.clock, voters.Change{Kind: kind, ID: 2}); err != nil {
		p.Fatal(err)
	}
	p.exchange(syncs)
}

func always(*Write) bool { return true }

// One of two voters is demoted while calls come in. The other one loses its power before its disk knows that
// the change is committed. It restarts as one of two voters, and needs the vote of the demoted node.
func TestOnlyVoterThatLostThatItIsOneLeadsAgain(t *testing.T) {
	p := newPair(t)
	p.change(voters.Add, always)
	for range 3 {
		p.tick(always)
	}
	p.change(voters.Promote, always)
	if s := p.Status(); !s.Ready || len(s.Voters) != 2 {
		t.Fatalf("before: %+v", s)
	}
	isChange := func(e *pb.Entry) bool { return e.GetType() == pb.EntryConfChange }
	var demotion uint64
	untilTheChange := func(w *Write) bool {
		if demotion > 0 {
			return false
		}
		if i := slices.IndexFunc(w.Entries, isChange); i >= 0 {
			demotion = w.Entries[i].GetIndex()
		}
		return true
	}
	p.change(voters.Demote, untilTheChange)
	for range 10 {
		p.Call(p.clock, attach("s"))
		p.tick(untilTheChange)
	}
	if p.other.Status().Applied < demotion {
		t.Fatalf("the demoted node has applied up to %d, the demotion is entry %d", p.other.Status().Applied, demotion)
	}
	if commit := p.state.HardState.GetCommit(); commit >= demotion {
		t.Fatalf("the disk of the voter knows the commit index %d", commit)
	}
	p.start(2)
	if s := p.Status(); len(s.Voters) != 2 {
		t.Fatalf("the voter restarts as %+v", s)
	}
	for range 100 { // ten election timeouts
		p.tick(always)
	}
	if s := p.Status(); !s.Ready || len(s.Voters) != 1 {
		t.Errorf("after the loss of power: %+v; the demoted node: %+v", s, p.other.Status())
	}
	if last := p.arrived[len(p.arrived)-1].GetIndex(); last <= demotion {
		t.Errorf("no entry follows the demotion, %d: the last one is %d", demotion, last)
	}
}
