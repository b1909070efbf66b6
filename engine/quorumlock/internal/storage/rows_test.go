package storage

import (
	"encoding/binary"
	"errors"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// Rows of any content are refused as damage, or are what their sums say. The sums of half of them are
// made right, as those of a program with a bug.
func FuzzRows(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{}, true)
	f.Add([]byte{8, 1, 8, 2}, []byte("snapshot"), []byte("12345678ABCDEFGHabcdefgh........entry"), true)
	f.Add([]byte{8, 0xff}, []byte{}, []byte("12345678ABCDEFGHabcdefgh........entry"), false)
	node := testNode.sum()
	f.Fuzz(func(t *testing.T, conf, data, entry []byte, seal bool) {
		r := snapshotRow{index: 7, term: 2, conf: conf, data: data}
		r.chain = receivedChain(node, r.index, r.term)
		r.sum = r.seal(node)
		s, err := r.snapshot()
		if (err == nil) == (s == nil) || err != nil && !errors.Is(err, dbfolder.ErrDamage) {
			t.Errorf("snapshot %v: %v", s, err)
		}
		var head [32]byte
		rest := entry[copy(head[:], entry):]
		e := entryRow{
			index: binary.LittleEndian.Uint64(head[:]),
			term:  binary.LittleEndian.Uint64(head[8:]),
			kind:  int64(binary.LittleEndian.Uint64(head[16:])),
			sum:   sum(binary.LittleEndian.Uint64(head[24:])),
			data:  rest,
		}
		if seal {
			e.index, e.kind = r.index+1, int64(int32(e.kind))
			e.sum = entrySum(r.chain, &pb.Entry{
				Index: new(e.index), Term: new(e.term), Type: new(pb.EntryType(e.kind)), Data: rest,
			})
		}
		got, err := e.entry(r.index, r.chain)
		switch {
		case seal && err != nil:
			t.Errorf("an entry with its sum: %v", err)
		case err != nil && !errors.Is(err, dbfolder.ErrDamage):
			t.Errorf("%v, want damage", err)
		case err == nil && (got.GetIndex() != r.index+1 || got.GetTerm() != e.term || string(got.GetData()) != string(rest)):
			t.Errorf("%v of %+v", got, e)
		}
	})
}

// No two rows that differ have one sum because their parts run into each other.
func TestSumsTellPartsApart(t *testing.T) {
	a, b := Identity{Cluster: "ab", ID: 1, Name: "c"}, Identity{Cluster: "a", ID: 1, Name: "bc"}
	if a.sum() == b.sum() {
		t.Error("cluster and name run into each other")
	}
	x := snapshotRow{index: 1, conf: []byte("ab"), data: []byte("c")}
	y := snapshotRow{index: 1, conf: []byte("a"), data: []byte("bc")}
	if x.seal(0) == y.seal(0) {
		t.Error("members and data run into each other")
	}
	p := progress{state: stateOpen, term: 1}
	q := progress{state: stateOpen, vote: 1}
	if p.sum(1, 2) == q.sum(1, 2) || p.sum(1, 2) == p.sum(2, 1) {
		t.Error("two different rows of progress have one sum")
	}
	e := &pb.Entry{Index: new(uint64(5)), Term: new(uint64(2)), Data: []byte("data")}
	if entrySum(1, e) == entrySum(2, e) {
		t.Error("an entry has one sum behind two others")
	}
	if _, err := (&entryRow{index: 5, term: 2, data: e.Data, sum: entrySum(1, e)}).entry(4, 2); err == nil {
		t.Error("an entry behind another one than it was written behind is accepted")
	}
}
