package disklock

import (
	"fmt"
	"hash/crc64"

	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// A snapshot of the table replaces the rows before it. The writer writes it in pieces, each in one
// transaction with a batch, so that no caller waits for the whole. It counts from the transaction
// that writes its header. Then the writer removes the rows and the former snapshot, in pieces, too.
//
//	taken ── rows up to seq are committed ──> pieces ──> header ──> removal of older rows ──> done
//
// Whenever the process dies, there is a complete snapshot with all rows behind it.

// Work for a snapshot in one transaction: callers wait some milliseconds for it.
const (
	pieceRecords = 100
	pieceRows    = 64
)

// snapshot is a snapshot in the making. Only the writer uses it.
type snapshot struct {
	header
	content table.Snapshot
	reached bool // the rows that it contains are committed
	done    bool // it is complete, and older rows and records are being removed
	lowest  uint64
	written int    // records
	old     int    // removed records of the former snapshot
	room    []byte // for a record
}

// digestOf goes on from sum with one record.
func digestOf(sum uint64, record []byte) uint64 {
	b := fmt.Appendf(nil, "%d ", len(record))
	return crc64.Update(crc64.Update(sum, crcTable, b), crcTable, record)
}

// piece writes the next records, at most n, in the transaction at hand, and the
// header when there are no more. It returns how the snapshot stands if that commits.
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

// forget removes the next n rows that the snapshot replaces, and some records of the former one. It
// reports whether none are left.
func (s *store) forget(sn snapshot, n int) (snapshot, bool, error) {
	low := sn.lowest + uint64(n)
	rows := low <= sn.seq
	if !rows {
		low = sn.seq + 1
	}
	if err := s.exec("DELETE FROM journal WHERE seq < ?", int64(low)); err != nil {
		return sn, false, err
	}
	sn.lowest = low
	records := sn.old + 4*n
	if err := s.exec("DELETE FROM records WHERE number < ? AND position < ?", int64(sn.number), records); err != nil {
		return sn, false, err
	}
	sn.old = records
	var left int
	if err := s.query("SELECT count(*) FROM (SELECT 1 FROM records WHERE number < "+fmt.Sprint(sn.number)+" LIMIT 1)",
		&left); err != nil {
		return sn, false, err
	}
	if rows || left > 0 {
		return sn, false, nil
	}
	return sn, true, s.exec("DELETE FROM snapshots WHERE number < ?", int64(sn.number))
}

// forgetAll removes everything that is neither part of the snapshot nor behind it.
func (s *store) forgetAll(h *header) error {
	for _, statement := range []string{
		"DELETE FROM journal WHERE seq <= (SELECT seq FROM snapshots WHERE number = ?)",
		"DELETE FROM records WHERE number <> ?",
		"DELETE FROM snapshots WHERE number <> ?",
	} {
		if err := s.exec(statement, int64(h.number)); err != nil {
			return err
		}
	}
	return nil
}
