package disklock

import (
	"fmt"
	"hash/crc64"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// A snapshot of the table replaces the rows before it. The writer writes it in pieces, each in one
// transaction with a batch, so that no caller waits for the whole snapshot. The transaction that
// writes its header completes it. Then the writer removes the replaced rows and the former
// snapshot, also in pieces.
//
//	taken ── rows up to seq are committed ──> pieces ──> header ──> removal of older rows ──> done
//
// Invariant: after every transaction the database has a complete snapshot and all rows after it.

// Work for a snapshot in one transaction: callers wait some milliseconds for it.
const (
	pieceRecords = 100
	pieceRows    = 64
	piecePages   = 16 // about as many pages of SQLite's log; it has no contents of removed rows
)

// snapshot is a snapshot in progress. Only the writer uses it.
type snapshot struct {
	header
	content table.Snapshot
	reached bool   // the rows that it contains are committed
	done    bool   // it is complete; the writer removes older rows and records
	lowest  uint64 // rows below this number are removed
	written int    // number of written records
	old     int    // records of former snapshots below this position are removed
	room    []byte // memory for a record
}

// digestOf returns the digest sum extended by one record.
func digestOf(sum uint64, record []byte) uint64 {
	b := fmt.Appendf(nil, "%d ", len(record))
	return crc64.Update(crc64.Update(sum, crcTable(), b), crcTable(), record)
}

// piece writes the next records, at most n, in the current transaction, and the header after the
// last one. It returns the state of the snapshot for the case that the transaction commits.
func (s *store) piece(sn snapshot, n int) (snapshot, error) {
	total := record.Records(&sn.content)
	for range n {
		if sn.written == total {
			break
		}
		sn.room = record.AppendRecord(sn.room[:0], &sn.content, sn.written)
		if err := s.keep(&sn, sn.room); err != nil {
			return sn, err
		}
	}
	if sn.written < total {
		return sn, nil
	}
	sn.done = true
	return sn, s.complete(&sn.header)
}

// keep writes one record.
func (s *store) keep(sn *snapshot, b []byte) error {
	if _, err := s.insertRecord.Exec(int64(sn.number), sn.written, b); err != nil {
		return err
	}
	sn.digest = digestOf(sn.digest, b)
	sn.written++
	return nil
}

// forget removes the next n rows that the snapshot replaces, and 4n records of the former snapshot.
// It reports whether none are left.
func (s *store) forget(sn snapshot, n int) (snapshot, bool, error) {
	low := sn.lowest + uint64(n)
	rows := low <= sn.seq
	if !rows {
		low = sn.seq + 1
	}
	if err := s.Exec("DELETE FROM journal WHERE seq < ?", int64(low)); err != nil {
		return sn, false, err
	}
	sn.lowest = low
	records := sn.old + 4*n
	if err := s.Exec("DELETE FROM records WHERE number < ? AND position < ?", int64(sn.number), records); err != nil {
		return sn, false, err
	}
	sn.old = records
	var left int
	if err := s.Query("SELECT count(*) FROM (SELECT 1 FROM records WHERE number < "+fmt.Sprint(sn.number)+" LIMIT 1)",
		&left); err != nil {
		return sn, false, err
	}
	if rows || left > 0 {
		return sn, false, nil
	}
	return sn, true, s.Exec("DELETE FROM snapshots WHERE number < ?", int64(sn.number))
}

// forgetAll removes all snapshots except h, and all rows that h replaces.
func (s *store) forgetAll(h *header) error {
	for _, statement := range []string{
		"DELETE FROM journal WHERE seq <= (SELECT seq FROM snapshots WHERE number = ?)",
		"DELETE FROM records WHERE number <> ?",
		"DELETE FROM snapshots WHERE number <> ?",
	} {
		if err := s.Exec(statement, int64(h.number)); err != nil {
			return err
		}
	}
	return nil
}
