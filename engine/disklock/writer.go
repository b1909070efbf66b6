package disklock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// Pauses between tries while the disk is full: they double from firstRetry to lastRetry.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// run is the writer. It returns after Close, or when it can't make a batch safe.
func (j *journal) run() {
	defer close(j.ended)
	defer j.rescue()
	for !j.broken() {
		quitting := isClosed(j.quit)
		switch b := j.next(); {
		case b != nil:
			j.write(b)
		case quitting:
			j.finish()
			return
		case j.snapshotDue():
			j.beginSnapshot()
		case j.snapshot != nil && j.snapshot.reached:
			j.write(nil)
		default:
			select {
			case <-j.wakeup:
			case <-j.quit:
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rescue ends all commits after an error or a panic of the writer, so that no caller waits forever.
func (j *journal) rescue() {
	if what := recover(); what != nil {
		j.poison(fmt.Errorf("a bug: %v", what))
	}
	if !j.broken() {
		return
	}
	if !j.distrust {
		j.store.close()
	}
	for b := j.next(); b != nil; b = j.next() {
		b.commit.End(j.refusing.Load().err)
	}
	close(j.failed)
}

func (j *journal) broken() bool {
	t := j.refusing.Load()
	return t != nil && !t.passing
}

// poison ends the journal for good because a write failed. The writer never retries a failed write:
// after a failed sync the system may report pages as clean that never reached the disk, and a
// second sync would succeed without writing them.
func (j *journal) poison(err error) {
	j.distrust = true
	j.end(unavailable(err,
		"%s could not be written and is not used any more; commands that were not answered may be lost: restart this "+
			"process, and look for a failing disk", j.path))
}

// end ends the journal for good.
func (j *journal) end(err *lockkeeper.Error) {
	j.result = err
	j.setRefusing(&refusing{err: err})
}

// write commits a batch, and a piece of the snapshot in progress. b may be nil. While the disk is
// full, write tries again.
func (j *journal) write(b *batch) {
	ended := false
	defer func() {
		if b != nil && !ended { // the batch can't be made safe, or the writer panics
			if !j.broken() {
				j.poison(fmt.Errorf("a bug"))
			}
			b.commit.End(j.refusing.Load().err)
		}
	}()
	var r *row
	if b != nil {
		r = &row{seq: j.seq + 1, count: b.count, entries: b.entries.Bytes(), after: b.after}
		r.sum = r.seal(j.chain)
	}
	if !j.commitRetrying(r) {
		return
	}
	if b != nil {
		j.checkReached()
		j.recycle(b)
		ended = true
		b.commit.End(nil)
	}
	j.checkpointIfDue()
}

// commitRetrying commits r, and tries again while the disk is full. It reports whether r is safe.
func (j *journal) commitRetrying(r *row) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		began := time.Now()
		err := j.commit(r)
		switch {
		case err == nil:
			j.setRefusing(nil)
			if report := j.onCommit.Load(); report != nil && r != nil {
				(*report)(r.count, time.Since(began))
			}
			return true
		case !dbfolder.IsFull(err):
			j.poison(err)
			return false
		case j.snapshot != nil:
			// Abandon the snapshot. Nothing reads the pieces written so far.
			j.snapshot, j.entries = nil, 0
			j.tries++
			continue
		}
		j.setRefusing(&refusing{passing: true, err: unavailable(err, "%s", describe(j.path, err))})
		if !j.pause(wait) {
			return j.lastTry(r)
		}
	}
}

// pause waits before the next try, and answers requests for the safe table meanwhile. It returns
// false if only the last try remains.
func (j *journal) pause(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case answer := <-j.safeRequests:
			answer <- j.readSafe()
		case <-j.quit:
			return false
		}
	}
}

// lastTry commits r when the journal closes while the disk is full. It reports whether r is safe.
func (j *journal) lastTry(r *row) bool {
	if err := j.commit(r); err != nil {
		j.end(unavailable(err, "%s; closed meanwhile: commands that were not answered are lost", describe(j.path, err)))
		return false
	}
	j.setRefusing(nil)
	return true
}

// commit executes one transaction with the row and a piece of the snapshot in progress, if any.
func (j *journal) commit(r *row) error {
	sn := j.snapshot
	if sn == nil || !sn.reached {
		if r == nil {
			return nil
		}
		if err := j.store.append(r); err != nil {
			return err
		}
		return j.committed(r)
	}
	if err := j.store.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	next, finished, err := j.advance(r, *sn)
	if err == nil {
		err = j.store.Exec("COMMIT")
	}
	if err != nil {
		// After some errors SQLite has rolled back already.
		_ = j.store.Exec("ROLLBACK")
		return err
	}
	j.advanced(next, finished)
	return j.committed(r)
}

// advance writes the row and the next piece in the current transaction.
func (j *journal) advance(r *row, sn snapshot) (next snapshot, finished bool, err error) {
	if r != nil {
		if err := j.store.append(r); err != nil {
			return sn, false, err
		}
	}
	if sn.done {
		return j.store.forget(sn, pieceRows)
	}
	next, err = j.store.piece(sn, pieceRecords)
	return next, false, err
}

// advanced records the progress of the snapshot after a commit.
func (j *journal) advanced(next snapshot, finished bool) {
	j.pages += piecePages
	if next.done && !j.snapshot.done {
		j.header, j.entries = next.header, 0
		next.content.Claims, next.content.Sessions = nil, nil
	}
	j.snapshot = &next
	if finished {
		j.snapshot = nil
	}
}

// committed records that the row is safe, and writes the mark. Callers get their answers after it.
func (j *journal) committed(r *row) error {
	if r == nil {
		return nil
	}
	j.seq, j.chain, j.after = r.seq, r.sum, r.after
	j.entries += r.count
	j.pages += len(r.entries)/pageSize + 2
	j.stats.syncs.Add(1)
	j.stats.entries.Add(int64(r.count))
	j.stats.last.Store(time.Now().UnixNano())
	if err := j.marker.Write(j.seq, j.after.Fences); err != nil {
		// Go on without the mark: it only helps Open to detect losses. Examine reports the error.
		j.stats.mark.Store(&err)
	}
	if j.options.committed != nil {
		j.options.committed(r)
	}
	return nil
}

// checkpointIfDue keeps SQLite's log short.
func (j *journal) checkpointIfDue() {
	if j.pages < j.options.checkpointPages {
		return
	}
	switch err := j.store.Checkpoint(false); {
	case err == nil:
		j.pages = 0
	case dbfolder.IsFull(err):
		j.pages = 0 // the log keeps growing; try again later
	default:
		j.poison(err)
	}
}

// finish closes the journal, and handles the errors of close.
func (j *journal) finish() {
	err := j.close()
	switch {
	case err == nil:
	case dbfolder.IsFull(err): // the snapshot is not needed: the journal has all its entries
		j.store.close()
	default:
		j.poison(err)
	}
}

// close writes a snapshot of the whole table and marks the database as closed. After an error the
// next Open replays the journal.
func (j *journal) close() error {
	if j.snapshot != nil && !j.snapshot.done {
		j.tries++ // forgetAll removes its pieces
	}
	j.beginSnapshot()
	for j.snapshot != nil && !j.snapshot.done {
		if err := j.commitPieces(); err != nil {
			return err
		}
	}
	if err := j.store.Checkpoint(true); err != nil {
		return err
	}
	return j.store.close()
}

// commitPieces writes many pieces in one transaction, because no caller waits any more. With the
// last piece it sets the state to closed.
func (j *journal) commitPieces() error {
	if err := j.store.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	next, err := j.store.piece(*j.snapshot, 100*pieceRecords)
	if err == nil && next.done {
		if err = j.store.forgetAll(&next.header); err == nil {
			err = j.store.Exec("UPDATE meta SET state = ?", stateClosed)
		}
	}
	if err == nil {
		err = j.store.Exec("COMMIT")
	}
	if err != nil {
		_ = j.store.Exec("ROLLBACK")
		return err
	}
	j.snapshot = &next
	return nil
}
