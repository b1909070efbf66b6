package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// crcTable returns the table for sums. The first call makes it.
func crcTable() *crc64.Table { return crc64.MakeTable(crc64.ECMA) }

// A sum is the CRC-64 of numbers, 8 bytes each, and byte strings, each behind its length. A sum that
// goes on from another one has that as its first number: a CRC whose register begins with x, and goes
// on with y, is the same if x and y change places.
type sum uint64

func (s sum) numbers(all ...uint64) sum {
	var b [8]byte
	for _, n := range all {
		binary.LittleEndian.PutUint64(b[:], n)
		s = sum(crc64.Update(uint64(s), crcTable(), b[:]))
	}
	return s
}

func (s sum) bytes(b []byte) sum {
	return sum(crc64.Update(uint64(s.numbers(uint64(len(b)))), crcTable(), b))
}

func (s sum) text(t string) sum { return s.bytes([]byte(t)) }

// An Identity says which node of which cluster has the folder. It never changes.
type Identity struct {
	Cluster string // id of the cluster
	ID      uint64 // of the node in the log; a node that lost something gets a new one
	Name    string
	Random  uint32 // see package voters
}

func (i *Identity) sum() sum {
	return sum(0).text(i.Cluster).numbers(i.ID).text(i.Name).numbers(uint64(i.Random))
}

// check refuses an identity that no node can have.
func (i *Identity) check() error {
	if i.Cluster == "" || i.ID == 0 || i.Name == "" {
		return fmt.Errorf("cluster %q, id %d and name %q: a node needs all three", i.Cluster, i.ID, i.Name)
	}
	return nil
}

// is reports whether all fields of want that are not zero are those of i.
func (i *Identity) is(want *Identity) bool {
	return (want.Cluster == "" || want.Cluster == i.Cluster) && (want.ID == 0 || want.ID == i.ID) &&
		(want.Name == "" || want.Name == i.Name) && (want.Random == 0 || want.Random == i.Random)
}

func (i *Identity) String() string {
	return fmt.Sprintf("node %q (id %016x) of cluster %q", i.Name, i.ID, i.Cluster)
}

const (
	stateOpen   = "open"
	stateClosed = "closed"
)

// progress is the row of that table, without its sum.
type progress struct {
	state, writer      string
	file               uint64
	opened, commits    uint64
	term, vote, commit uint64
	last               uint64
	chain              sum
}

// sum returns the sum of the row of that node beside that snapshot.
func (p *progress) sum(node, snapshot sum) sum {
	return sum(0).numbers(uint64(node), uint64(snapshot)).text(p.state).text(p.writer).numbers(p.file, p.opened, p.commits,
		p.term,
		p.vote, p.commit, p.last, uint64(p.chain))
}

// entrySum returns the sum of an entry behind one with the sum before.
func entrySum(before sum, e *pb.Entry) sum {
	return sum(0).numbers(uint64(before), e.GetIndex(), e.GetTerm(), uint64(e.GetType())).bytes(e.GetData())
}

// snapshotRow is the row of the snapshot. Without a snapshot it has no index, and the chain begins
// with the node.
type snapshotRow struct {
	index, term uint64
	conf, data  []byte
	chain       sum
	sum         sum
}

// noSnapshot is what a node without a snapshot has instead.
func noSnapshot(node sum) snapshotRow { return snapshotRow{chain: node, sum: node} }

// seal returns the sum of a snapshot of that node.
func (r *snapshotRow) seal(node sum) sum {
	return sum(0).numbers(uint64(node), r.index, r.term, uint64(r.chain)).bytes(r.conf).bytes(r.data)
}

// receivedChain returns the chain of a snapshot whose last entry this node may not have.
func receivedChain(node sum, index, term uint64) sum {
	return sum(0).numbers(uint64(node), index, term)
}

func (r *snapshotRow) snapshot() (*pb.Snapshot, error) {
	conf := new(pb.ConfState)
	if err := proto.Unmarshal(r.conf, conf); err != nil {
		return nil, dbfolder.Damagef("table snapshot: its members can't be read: %v", err)
	}
	return &pb.Snapshot{
		Data:     r.data,
		Metadata: &pb.SnapshotMetadata{Index: new(r.index), Term: new(r.term), ConfState: conf},
	}, nil
}

// entryRow is a row of the entries.
type entryRow struct {
	index, term uint64
	kind        int64
	data        []byte
	sum         sum
}

// entry returns the entry of the row, which must follow one with the index and the sum before.
func (r *entryRow) entry(index uint64, before sum) (*pb.Entry, error) {
	if r.index != index+1 {
		return nil, dbfolder.Damagef("table entries: entry %d follows entry %d", r.index, index)
	}
	e := &pb.Entry{Index: new(r.index), Term: new(r.term), Type: new(pb.EntryType(r.kind)), Data: r.data}
	if own := entrySum(before, e); own != r.sum || int64(int32(r.kind)) != r.kind {
		return nil, dbfolder.Damagef("table entries, entry %d: its sum is %016x, by its contents and those before it should "+
			"be %016x", r.index, uint64(r.sum), uint64(own))
	}
	if len(r.data) == 0 {
		e.Data = nil
	}
	return e, nil
}
