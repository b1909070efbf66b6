package disklock

import (
	"encoding/json"
	"fmt"
	"hash/crc64"
	"strings"

	"github.com/lockkeeper/lockkeeper/table"
)

// A snapshot of the table lets the journal before it be forgotten. It is written
// in pieces, each in one transaction with a batch of the journal, so that nobody
// waits for the whole; it counts from the transaction on in which its header is
// written. Then what it replaces is removed, in pieces too. Whenever the process
// dies, either the former snapshot and all rows behind it are there, or this one
// and all rows behind it.

// What one transaction does for a snapshot while others wait for it: some
// milliseconds.
const (
	pieceRecords = 100
	pieceRows    = 64
)

// snapshot is one in the making. It is used by the writer alone.
type snapshot struct {
	header
	content table.Snapshot
	reached bool // the journal is written up to its row
	done    bool // it is complete, and what is older is being removed
	lowest  uint64
	old     int // records of the former snapshot that are removed
}

// kinds are the kinds of records, in the order in which they are written.
const (
	kindSession = "session"
	kindClaim   = "claim"
	kindFreeze  = "freeze"
	kindPace    = "pace"
)

// size is how many records the snapshot has.
func size(s *table.Snapshot) int {
	return len(s.Sessions) + len(s.Claims) + len(s.Freezes) + len(s.HoldTimes)
}

// recordAt is record i of the snapshot.
func recordAt(s *table.Snapshot, i int) (kind string, record any) {
	if i < len(s.Sessions) {
		return kindSession, &s.Sessions[i]
	}
	if i -= len(s.Sessions); i < len(s.Claims) {
		return kindClaim, &s.Claims[i]
	}
	if i -= len(s.Claims); i < len(s.Freezes) {
		return kindFreeze, &s.Freezes[i]
	}
	return kindPace, &s.HoldTimes[i-len(s.Freezes)]
}

// addRecord is the reverse: it adds what a record says to s.
func addRecord(s *table.Snapshot, kind, record string) error {
	switch kind {
	case kindSession:
		return addTo(&s.Sessions, record)
	case kindClaim:
		return addTo(&s.Claims, record)
	case kindFreeze:
		return addTo(&s.Freezes, record)
	case kindPace:
		return addTo(&s.HoldTimes, record)
	}
	return fmt.Errorf("kind %q is unknown", kind)
}

func addTo[T any](records *[]T, text string) error {
	var r T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields() // another version may mean something by it
	if err := d.Decode(&r); err != nil {
		return err
	}
	*records = append(*records, r)
	return nil
}

// digestOf goes on from sum with one record.
func digestOf(sum uint64, kind, record string) uint64 {
	return crc64.Update(sum, crcTable, []byte(kind+" "+record+"\n"))
}

// piece writes the next records, at most n, in the transaction at hand, and the
// header when there are no more. It returns how the snapshot stands if that commits.
func (s *store) piece(sn snapshot, n int) (snapshot, error) {
	total := size(&sn.content)
	for range n {
		if sn.records == total {
			break
		}
		kind, record := recordAt(&sn.content, sn.records)
		text, err := json.Marshal(record)
		if err != nil {
			return sn, err
		}
		if err := s.keep(&sn, kind, string(text)); err != nil {
			return sn, err
		}
	}
	if sn.records < total {
		return sn, nil
	}
	sn.done = true
	return sn, s.complete(&sn.header)
}

// keep writes one record.
func (s *store) keep(sn *snapshot, kind, record string) error {
	if _, err := s.record.Exec(int64(sn.number), sn.records, kind, record); err != nil {
		return err
	}
	sn.digest = digestOf(sn.digest, kind, record)
	sn.records++
	return nil
}

// forget removes the next of what the snapshot replaces: n rows, and some more
// records. It reports whether there is no more.
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

// forgetAll removes everything that is not of the snapshot, or behind it.
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
