package storage

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// A transaction has what becomes true if it commits. It refuses writes that no Raft node makes: they
// would hide a loss, or be one.
type transaction struct {
	db       *dbfolder.DB
	node     sum
	progress progress
	snapshot snapshotRow                // without conf and data
	insert   func(columns ...any) error // into the entries
	replace  func(columns ...any) error // the progress
	bytes    int                        // written, about
}

// apply executes a write.
func (t *transaction) apply(w *replica.Write) error {
	if w.Snapshot.GetMetadata().GetIndex() != 0 {
		if err := t.replaceSnapshot(w.Snapshot, w.Install); err != nil {
			return err
		}
	}
	if len(w.Entries) > 0 {
		if err := t.append(w.Entries); err != nil {
			return err
		}
	}
	if h := w.HardState; h != nil {
		p := &t.progress
		if h.GetTerm() < p.term || h.GetTerm() == p.term && p.vote != 0 && h.GetVote() != p.vote {
			return fmt.Errorf("vote %d of term %d after vote %d of term %d", h.GetVote(), h.GetTerm(), p.vote, p.term)
		}
		p.term, p.vote, p.commit = h.GetTerm(), h.GetVote(), h.GetCommit()
	}
	return nil
}

// replaceSnapshot writes a snapshot, and removes the entries that it contains; all, if it is
// received from the leader.
func (t *transaction) replaceSnapshot(s *pb.Snapshot, received bool) error {
	r := snapshotRow{index: s.GetMetadata().GetIndex(), term: s.GetMetadata().GetTerm(), data: s.GetData()}
	if r.index <= t.snapshot.index {
		return fmt.Errorf("a snapshot at entry %d after one at entry %d", r.index, t.snapshot.index)
	}
	if r.data == nil {
		r.data = []byte{}
	}
	var err error
	if r.conf, err = proto.Marshal(s.GetMetadata().GetConfState()); err != nil {
		return err
	}
	if r.conf == nil {
		r.conf = []byte{}
	}
	if received {
		r.chain = receivedChain(t.node, r.index, r.term)
		err = t.db.Exec("DELETE FROM entries")
	} else {
		r.chain, err = t.chainAt(r.index, r.term)
		if err == nil {
			err = t.db.Exec("DELETE FROM entries WHERE idx <= ?", int64(r.index))
		}
	}
	if err != nil {
		return err
	}
	if received {
		t.progress.last, t.progress.chain = r.index, r.chain
	}
	r.sum = r.seal(t.node)
	t.bytes += len(r.data)
	err = t.db.Exec("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?, ?, ?, ?)", int64(r.index), int64(r.term), r.conf,
		r.data, int64(r.chain), int64(r.sum))
	r.conf, r.data = nil, nil
	t.snapshot = r
	return err
}

// chainAt returns the sum of the entry with that index and term.
func (t *transaction) chainAt(index, term uint64) (sum, error) {
	if index > t.progress.last {
		return 0, fmt.Errorf("a snapshot at entry %d, the last entry is %d", index, t.progress.last)
	}
	var stored, of int64
	err := t.db.Query(fmt.Sprintf("SELECT sum, term FROM entries WHERE idx = %d", int64(index)), &stored, &of)
	if err == nil && uint64(of) != term {
		err = fmt.Errorf("a snapshot at entry %d of term %d, the entry has term %d", index, term, uint64(of))
	}
	return sum(stored), err
}

// append writes entries, instead of those from the index of the first one on.
func (t *transaction) append(entries []*pb.Entry) error {
	p := &t.progress
	first := entries[0].GetIndex()
	if first <= t.snapshot.index || first > p.last+1 {
		return fmt.Errorf("entry %d after entry %d and a snapshot at entry %d", first, p.last, t.snapshot.index)
	}
	if first <= p.last {
		if err := t.truncate(first); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.GetIndex() != p.last+1 {
			return fmt.Errorf("entry %d after entry %d", e.GetIndex(), p.last)
		}
		p.last, p.chain = e.GetIndex(), entrySum(p.chain, e)
		t.bytes += len(e.GetData()) + entryBytes
		if err := t.insert(entryColumns(e, p.chain)...); err != nil {
			return err
		}
	}
	return nil
}

const insertEntry = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"

// entryColumns returns the arguments of insertEntry.
func entryColumns(e *pb.Entry, own sum) []any {
	data := e.GetData()
	if data == nil {
		data = []byte{}
	}
	return []any{int64(e.GetIndex()), int64(e.GetTerm()), int64(e.GetType()), data, int64(own)}
}

// entryBytes is about the size of a row of the entries without the data.
const entryBytes = 32

// truncate removes the entries from first on.
func (t *transaction) truncate(first uint64) error {
	chain := t.snapshot.chain
	if first-1 > t.snapshot.index {
		var stored int64
		err := t.db.Query(fmt.Sprintf("SELECT sum FROM entries WHERE idx = %d", int64(first-1)), &stored)
		if err != nil {
			return err
		}
		chain = sum(stored)
	}
	t.progress.last, t.progress.chain = first-1, chain
	return t.db.Exec("DELETE FROM entries WHERE idx >= ?", int64(first))
}

// finish writes the progress of the transaction.
func (t *transaction) finish() error {
	p := &t.progress
	p.commits++
	return t.replace(p.state, p.writer, int64(p.file), int64(p.opened), int64(p.commits), int64(p.term), int64(p.vote),
		int64(p.commit), int64(p.last), int64(p.chain), int64(p.sum(t.node, t.snapshot.sum)))
}

const replaceProgress = "INSERT OR REPLACE INTO progress VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
