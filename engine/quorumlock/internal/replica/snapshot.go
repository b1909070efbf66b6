package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// replicated is what the log makes: the same on all nodes that have applied the same entries.
type replicated struct {
	table    *table.Table
	settings settings
	rules    uint64 // the version that the settings state; 0: this node has no state yet
}

// A snapshot in bytes:
//
//	snapshot = form index term state
//	state    = settings table
//	table    = length header, and for each record: length record
//
// All numbers are varints. Package record has the forms of header and records. The index and the term
// are those of the last entry that the state has.

type position struct{ index, term uint64 }

func appendPosition(b []byte, at position) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, form), at.index), at.term)
}

func appendState(b []byte, state *replicated) []byte {
	b = appendSettings(b, &state.settings)
	s := state.table.Snapshot()
	part := record.AppendHeaderUnder(nil, state.rules, &s)
	b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	for i := range record.Records(&s) {
		part = record.AppendRecord(part[:0], &s, i)
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return b
}

// readSnapshot reads the data of a snapshot, and compares its position with the one that raft has.
func (r *Replica) readSnapshot(s *pb.Snapshot) (state replicated, err error) {
	b := s.GetData()
	if len(b) == 0 {
		return state, errShort
	}
	if b[0] != form {
		return state, fmt.Errorf("%w: the snapshot has form %d, this program has form %d", ErrVersion, b[0], form)
	}
	var at position
	b = b[1:]
	for _, n := range []*uint64{&at.index, &at.term} {
		if *n, b, err = cutNumber(b); err != nil {
			return state, err
		}
	}
	if meta := s.GetMetadata(); at.index != meta.GetIndex() || at.term != meta.GetTerm() {
		return state, fmt.Errorf("the snapshot at entry %d of term %d has the state of entry %d of term %d", meta.GetIndex(),
			meta.GetTerm(), at.index, at.term)
	}
	if state.settings, b, err = cutSettings(b); err != nil {
		return state, err
	}
	state.rules = versionOf(state.settings.get(rulesKey).Value)
	if state.rules == 0 {
		return state, errors.New("the snapshot does not state the version of its rules")
	}
	if err = r.config.Rules.check(state.rules); err != nil {
		return state, err
	}
	state.table, err = readTable(b, state.rules)
	return state, err
}

func readTable(b []byte, rules uint64) (*table.Table, error) {
	part, b, err := cutBytes(b)
	if err != nil {
		return nil, err
	}
	header, err := record.DecodeHeader(part)
	if err != nil {
		return nil, err
	}
	if header.Rules != rules {
		return nil, fmt.Errorf("the snapshot states rules %d, its table rules %d", rules, header.Rules)
	}
	s := table.Snapshot{Counters: header.Counters}
	for range header.Records {
		if part, b, err = cutBytes(b); err != nil {
			return nil, err
		}
		if err = record.AddRecord(&s, part); err != nil {
			return nil, err
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%d bytes follow the snapshot's records", len(b))
	}
	return table.Restore(s)
}

var errShort = errors.New("the data ends too early")

func cutNumber(b []byte) (n uint64, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, errShort
	}
	return n, b[size:], nil
}

func cutBytes(b []byte) (part, rest []byte, err error) {
	n, b, err := cutNumber(b)
	if err != nil || n > uint64(len(b)) {
		return nil, nil, errShort
	}
	return b[:n], b[n:], nil
}

// install makes the state of a snapshot the state of this node. The snapshot does not say which calls
// of this node it has.
func (r *Replica) install(s *pb.Snapshot) error {
	state, err := r.readSnapshot(s)
	if err != nil {
		return fmt.Errorf("the snapshot at entry %d can't be used: %w", s.GetMetadata().GetIndex(), err)
	}
	before := r.settings
	r.replicated, r.applied = state, s.GetMetadata().GetIndex()
	r.conf, r.confAt = s.GetMetadata().GetConfState(), 0
	r.notifyChanged(&before)
	return nil
}

// A storage has the durable part of the log, for raft, in memory.
type storage struct {
	*raft.MemoryStorage
	replica *Replica
}

// Snapshot returns a snapshot for a node that lacks entries that this node no longer has. It is
// current, not the one on the disk: raft ignores a snapshot whose configuration does not have the
// receiver, which may just have been added.
func (s storage) Snapshot() (*pb.Snapshot, error) {
	r := s.replica
	if r.applying {
		return nil, raft.ErrSnapshotTemporarilyUnavailable // raft tries again with the next heartbeat
	}
	last, err := s.MemoryStorage.Snapshot()
	if err != nil || last.GetMetadata().GetIndex() == r.applied {
		return last, err
	}
	term, err := s.Term(r.applied)
	if err != nil {
		return nil, err
	}
	return s.CreateSnapshot(r.applied, r.conf, appendState(appendPosition(nil, position{r.applied, term}), &r.replicated))
}

type hash [sha256.Size]byte

// hashes are the hashes of this node's state at the latest snapshots.
type hashes struct {
	at   [4]uint64 // indexes; 0: none
	sum  [4]hash
	next int
}

func (h *hashes) add(index uint64, sum hash) {
	h.at[h.next], h.sum[h.next] = index, sum
	h.next = (h.next + 1) % len(h.at)
}

// compare returns an error if this node has another hash at that index.
func (h *hashes) compare(index uint64, sum hash) error {
	for i, at := range h.at {
		if at == index && h.sum[i] != sum {
			return fmt.Errorf("its state differs from the leader's since entry %d or before: hash %x, the leader has %x",
				index, h.sum[i][:8], sum[:8])
		}
	}
	return nil
}

// snapshot makes a snapshot of the state after the entry at that position, if one is due there.
func (r *Replica) snapshot(at position) {
	if at.index%r.config.SnapshotEvery != 0 {
		return
	}
	begin := appendPosition(nil, at)
	data := appendState(begin, &r.replicated)
	sum := sha256.Sum256(data[len(begin):])
	r.hashes.add(at.index, sum)
	s, err := r.storage.CreateSnapshot(at.index, r.conf, data)
	if err != nil {
		r.fail(err)
		return
	}
	compactTo := at.index - min(at.index, r.config.KeepEntries)
	r.enqueue(Write{Snapshot: s}, openWrite{compactTo: compactTo})
	if r.lead.ready {
		r.lead.hash = appendHash(at.index, sum)
	}
}
