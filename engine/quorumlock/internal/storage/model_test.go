package storage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// A script is writes as a replica makes them, at random, and what a disk has after each of them. Two
// scripts with the same seed are equal.
type script struct {
	random *rand.Rand
	state  replica.State
	number uint64
}

var testNode = Identity{Cluster: "c0ffee", ID: 17, Name: "ann", Random: 4}

func newScript(seed uint64) *script {
	return &script{random: rand.New(rand.NewPCG(seed, 7)), state: replica.State{
		HardState: &pb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))},
		Snapshot: &pb.Snapshot{Data: []byte("table"), Metadata: &pb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &pb.ConfState{Voters: []uint64{17, 18, 19}},
		}},
	}}
}

// skip returns the state after n writes.
func (s *script) skip(n int) replica.State {
	for range n {
		s.next()
	}
	return s.state
}

func (s *script) last() uint64 {
	if n := len(s.state.Entries); n > 0 {
		return s.state.Entries[n-1].GetIndex()
	}
	return s.state.Snapshot.GetMetadata().GetIndex()
}

// next returns the next write, and makes it part of the state.
func (s *script) next() replica.Write {
	s.number++
	w := replica.Write{Number: s.number}
	hard := proto.Clone(s.state.HardState).(*pb.HardState)
	commit, base := hard.GetCommit(), s.state.Snapshot.GetMetadata().GetIndex()
	term := hard.GetTerm()
	switch p := s.random.IntN(100); {
	case p < 10: // a vote
		w.HardState = &pb.HardState{Term: new(term + 1), Vote: new(1 + s.random.Uint64N(3)), Commit: new(commit)}
	case p < 25 && s.last() > commit: // another leader replaces entries
		first := commit + 1 + s.random.Uint64N(s.last()-commit)
		w.HardState = &pb.HardState{Term: new(term + 1), Vote: new(uint64(0)), Commit: new(commit)}
		w.Entries = s.entries(first, term+1)
	case p < 35 && commit > base:
		w.Snapshot = s.snapshot(base + 1 + s.random.Uint64N(commit-base))
	case p < 38: // the leader sends its snapshot
		index := s.last() + 1 + s.random.Uint64N(50)
		w.Snapshot, w.Install = s.snapshot(index), true
		w.Snapshot.Metadata.Term = new(term)
		w.HardState = &pb.HardState{Term: new(term), Vote: new(hard.GetVote()), Commit: new(index)}
		if s.random.IntN(2) == 0 {
			w.Entries = s.entries(index+1, term)
		}
	default:
		w.Entries = s.entries(s.last()+1, term)
		if s.random.IntN(2) == 0 {
			commit += s.random.Uint64N(s.last() - commit + 1)
			w.HardState = &pb.HardState{Term: new(term), Vote: new(hard.GetVote()), Commit: new(commit)}
		}
	}
	apply(&s.state, &w)
	return w
}

func (s *script) entries(first, term uint64) (all []*pb.Entry) {
	for i := range 1 + s.random.Uint64N(4) {
		e := &pb.Entry{Index: new(first + i), Term: new(term), Type: new(pb.EntryType(s.random.IntN(3)))}
		if n := s.random.IntN(1500) * s.random.IntN(3) * (1 + 9*(s.random.IntN(10)/9)); n > 0 {
			e.Data = s.bytes(n)
		}
		all = append(all, e)
	}
	return all
}

func (s *script) snapshot(index uint64) *pb.Snapshot {
	m := &pb.SnapshotMetadata{
		Index:     new(index),
		Term:      new(uint64(1)),
		ConfState: &pb.ConfState{Voters: []uint64{17, index}},
	}
	for _, e := range s.state.Entries {
		if e.GetIndex() == index {
			m.Term = new(e.GetTerm())
		}
	}
	return &pb.Snapshot{Data: s.bytes(1 + s.random.IntN(30_000)), Metadata: m}
}

func (s *script) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	return b
}

// apply makes a write part of what a disk has, as the disk of the simulation in package replica does.
func apply(s *replica.State, w *replica.Write) {
	if w.HardState != nil {
		s.HardState = w.HardState
	}
	if w.Snapshot != nil {
		s.Snapshot = w.Snapshot
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *pb.Entry) bool {
			return w.Install || e.GetIndex() <= w.Snapshot.GetMetadata().GetIndex()
		})
	}
	if len(w.Entries) > 0 {
		first := w.Entries[0].GetIndex()
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *pb.Entry) bool { return e.GetIndex() >= first })
		s.Entries = append(s.Entries, w.Entries...)
	}
}

// difference says in what two states differ; "" if they are equal.
func difference(got, want replica.State) string {
	g, w := got.HardState, want.HardState
	switch {
	case g.GetTerm() != w.GetTerm() || g.GetVote() != w.GetVote() || g.GetCommit() != w.GetCommit():
		return fmt.Sprintf("hard state %v, want %v", g, w)
	case !proto.Equal(got.Snapshot.GetMetadata(), want.Snapshot.GetMetadata()):
		return fmt.Sprintf("snapshot %v, want %v", got.Snapshot.GetMetadata(), want.Snapshot.GetMetadata())
	case !bytes.Equal(got.Snapshot.GetData(), want.Snapshot.GetData()):
		return fmt.Sprintf("snapshot %v has other data", got.Snapshot.GetMetadata())
	case len(got.Entries) != len(want.Entries):
		return fmt.Sprintf("%d entries, want %d", len(got.Entries), len(want.Entries))
	}
	for i, e := range got.Entries {
		other := want.Entries[i]
		if e.GetIndex() != other.GetIndex() || e.GetTerm() != other.GetTerm() || e.GetType() != other.GetType() ||
			!bytes.Equal(e.GetData(), other.GetData()) {
			return fmt.Sprintf("entry %d of term %d, want entry %d of term %d, or other data", e.GetIndex(), e.GetTerm(),
				other.GetIndex(), other.GetTerm())
		}
	}
	return ""
}
