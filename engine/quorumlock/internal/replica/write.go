package replica

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/table"
)

// A Write is what must become durable. After a crash, a Write is there as a whole or not at all, and
// if it is there, all Writes before it are.
type Write struct {
	Number    uint64        // rises by 1
	HardState *pb.HardState // replaces the one before; nil if it is unchanged

	// Entries follow each other. Entries that the disk has from the index of the first one on are
	// replaced.
	Entries []*pb.Entry

	// Snapshot replaces the one before; nil if there is none. Entries up to its index are no longer
	// needed. If Install is set, it came from the leader and replaces the whole log.
	Snapshot *pb.Snapshot
	Install  bool
}

// A State is what a disk has: the effect of all durable Writes.
type State struct {
	HardState *pb.HardState
	Snapshot  *pb.Snapshot
	Entries   []*pb.Entry // those after the snapshot; earlier ones are ignored
}

// A Beginning is what a new cluster begins with.
type Beginning struct {
	Voters   []uint64     // the ids of its first nodes
	Table    *table.Table // of the engine whose locks it goes on with, after a Restart; nil: an empty one
	Settings []Setting    // revisions are ignored
	Rules    uint64       // the version of the rules; 0: that of package table
}

// Found returns the State with which each of the first nodes of a new cluster begins. It must be used
// once for a cluster: nodes that join later begin with the zero State and are added by
// Replica.Change. An error says which setting is wrong.
func Found(b Beginning) (State, error) {
	state := replicated{table: b.Table, rules: cmp.Or(b.Rules, table.RulesVersion)}
	if b.Table == nil {
		state.table = table.New()
	}
	state.settings.put(&Setting{Key: rulesKey, Value: versionText(state.rules)})
	for _, s := range b.Settings {
		s.Revision = 0
		if err := cmp.Or(refuseReserved(s.Key), state.settings.refuse(s)); err != nil {
			return State{}, err
		}
		state.settings.put(&s)
	}
	const index, term = 1, 1
	return State{
		HardState: &pb.HardState{Term: new(uint64(term)), Commit: new(uint64(index))},
		Snapshot: &pb.Snapshot{
			Data: appendState(appendPosition(nil, position{index, term}), &state),
			Metadata: &pb.SnapshotMetadata{
				Index: new(uint64(index)), Term: new(uint64(term)), ConfState: &pb.ConfState{Voters: b.Voters},
			},
		},
	}, nil
}

// writes are the writes on their way to the disk.
type writes struct {
	last  uint64
	open  []openWrite // oldest first
	bytes int         // of the entries in open
	ended receipt     // when a write last ended, or began while no other one was open

	late   *pb.HardState // only its commit index is not on the disk; the next write brings it
	commit uint64        // the commit index that the disk has
}

type openWrite struct {
	number    uint64
	append    *pb.Message // what raft wants to be durable; nil for what this node adds
	compactTo uint64      // of a snapshot that this node adds: entries up to this index can go
	commit    uint64      // the commit index that it brings; 0: none
	bytes     int
	size      int // bytes of its entries and its snapshot
}

// load begins with what the disk has.
func (r *Replica) load(state *State) error {
	r.table, r.conf = table.New(), &pb.ConfState{}
	if !raft.IsEmptySnap(state.Snapshot) {
		if err := r.install(state.Snapshot); err != nil {
			return err
		}
		if err := r.storage.ApplySnapshot(state.Snapshot); err != nil {
			return err
		}
	}
	next, term := r.applied+1, state.Snapshot.GetMetadata().GetTerm()
	var entries []*pb.Entry
	for _, e := range state.Entries {
		switch {
		case e.GetIndex() <= r.applied:
			continue
		case e.GetIndex() != next || e.GetTerm() < term || e.GetTerm() > state.HardState.GetTerm():
			return fmt.Errorf("the log on the disk has entry %d of term %d where entry %d of a term from %d to %d must follow",
				e.GetIndex(), e.GetTerm(), next, term, state.HardState.GetTerm())
		}
		entries, next, term = append(entries, e), next+1, e.GetTerm()
	}
	commit := max(state.HardState.GetCommit(), r.applied)
	if commit >= next {
		return fmt.Errorf("the disk has lost entries: it has entries up to %d, and stated that entry %d is committed",
			next-1, commit)
	}
	r.writes.commit = commit
	if raft.IsEmptyHardState(state.HardState) {
		if len(entries) > 0 || r.applied > 0 {
			return errors.New("the disk has a log and no hard state: the vote of this node is lost")
		}
		return nil
	}
	return errors.Join(r.storage.Append(entries), r.storage.SetHardState(&pb.HardState{
		Term: new(state.HardState.GetTerm()), Vote: new(state.HardState.GetVote()), Commit: new(commit),
	}))
}

// write hands a write of raft to the caller, unless the disk has all of it that has to be durable. A new
// commit index alone has not to be: entries are committed by being durable on a majority. It goes to the
// disk with the next write, so a call costs one sync on each voter and not two.
func (r *Replica) write(m *pb.Message) {
	if len(r.writes.open) == 0 && r.isDurable(m) {
		if m.Term != nil {
			r.writes.late = &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
			if err := r.storage.SetHardState(r.writes.late); err != nil {
				r.fail(err)
			}
		}
		r.respond(m.GetResponses())
		return
	}
	w := Write{Entries: m.GetEntries()}
	if m.Term != nil {
		w.HardState = &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		w.Snapshot, w.Install = m.GetSnapshot(), true
	}
	open := openWrite{append: m}
	for _, e := range w.Entries {
		open.bytes += len(e.GetData())
	}
	r.enqueue(w, open)
}

// isDurable reports whether a write adds at most a commit index to what is durable.
func (r *Replica) isDurable(m *pb.Message) bool {
	if len(m.GetEntries()) > 0 || !raft.IsEmptySnap(m.GetSnapshot()) {
		return false
	}
	durable, _, err := r.storage.InitialState()
	return err == nil && (m.Term == nil || durable.GetTerm() == m.GetTerm() && durable.GetVote() == m.GetVote())
}

func (r *Replica) enqueue(w Write, open openWrite) {
	r.writes.last++
	w.Number, open.number = r.writes.last, r.writes.last
	if w.HardState == nil {
		w.HardState = r.writes.late
	}
	r.writes.late = nil
	open.commit = w.HardState.GetCommit()
	open.size = open.bytes + len(w.Snapshot.GetData())
	if len(r.writes.open) == 0 {
		r.writes.ended = receipt{r.ticks, r.now}
	}
	r.writes.open = append(r.writes.open, open)
	r.writes.bytes += open.bytes
	r.out.Writes = append(r.out.Writes, w)
}

// flushCommit writes a commit index that is late without waiting for the next write.
func (r *Replica) flushCommit() {
	if r.writes.late != nil {
		r.enqueue(Write{}, openWrite{})
	}
}

// Persisted is the input that all writes up to number are durable.
func (r *Replica) Persisted(now time.Duration, number uint64) {
	if !r.begin(now) {
		return
	}
	r.writes.ended = receipt{r.ticks, r.now}
	for len(r.writes.open) > 0 && r.writes.open[0].number <= number && r.failed == nil {
		w := r.writes.open[0]
		r.writes.open = r.writes.open[1:]
		r.writes.bytes -= w.bytes
		r.writes.commit = max(r.writes.commit, w.commit)
		r.protect(func() { r.persisted(&w) })
	}
	r.settle()
}

// persisted makes a durable write visible to raft, and sends the messages that waited for it.
func (r *Replica) persisted(w *openWrite) {
	m := w.append
	if m == nil {
		if err := r.storage.Compact(w.compactTo); err != nil && !errors.Is(err, raft.ErrCompacted) {
			r.fail(err)
		}
		return
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		err := r.storage.ApplySnapshot(m.GetSnapshot())
		if err == nil {
			err = r.install(m.GetSnapshot())
		}
		if err != nil {
			r.fail(err)
			return
		}
		r.endSentCalls()
	}
	err := r.storage.Append(m.GetEntries())
	if m.Term != nil {
		err = errors.Join(err, r.storage.SetHardState(&pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}))
	}
	if err != nil {
		r.fail(err)
		return
	}
	r.respond(m.GetResponses())
}
