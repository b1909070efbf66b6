package disklock

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of what the writer does.
const (
	firstRetry = 100 * time.Millisecond // after the disk was full
	lastRetry  = 5 * time.Second
)

// run is the writer. It returns when quit is closed or a batch can't be made safe.
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

// rescue ends all commits if the writer can't go on, so that no caller waits for it.
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
		b.commit.End(j.trouble.Load().err)
	}
	close(j.failed)
}

func (j *journal) broken() bool {
	t := j.trouble.Load()
	return t != nil && !t.passing
}

// poison ends the journal for good. A failed write is never retried: after a failed sync the system
// may report pages as clean that never reached the disk, and a second sync would succeed without
// writing them.
func (j *journal) poison(err error) {
	j.distrust = true
	j.end(unavailable(err,
		"%s could not be written and is not used any more; commands that were not answered may be lost: restart this "+
			"process, and look for a failing disk", j.path))
}

// end ends the journal for good.
func (j *journal) end(err *lockkeeper.Error) {
	j.result = err
	j.setTrouble(&trouble{err: err})
}

// write commits a batch, and a piece of the snapshot that is in the making. b may be nil. While the disk is
// full it tries again.
func (j *journal) write(b *batch) {
	ended := false
	defer func() {
		if b != nil && !ended { // it can't be made safe, or the writer panics
			if !j.broken() {
				j.poison(fmt.Errorf("a bug"))
			}
			b.commit.End(j.trouble.Load().err)
		}
	}()
	var r *row
	if b != nil {
		r = &row{seq: j.seq + 1, count: b.count, entries: b.entries, after: b.after}
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
			j.setTrouble(nil)
			if tell := j.onCommit.Load(); tell != nil && r != nil {
				(*tell)(r.count, time.Since(began))
			}
			return true
		case !isFull(err):
			j.poison(err)
			return false
		case j.snapshot != nil:
			// The snapshot can wait. The pieces written so far are never read.
			j.snapshot, j.entries = nil, 0
			j.tries++
			continue
		}
		j.setTrouble(&trouble{passing: true, err: unavailable(err, "%s", describe(j.path, err))})
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
	j.setTrouble(nil)
	return true
}

// commit does one transaction: the row, and a piece of a snapshot if one is being made.
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
	if err := j.store.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	next, finished, err := j.advance(r, *sn)
	if err == nil {
		err = j.store.exec("COMMIT")
	}
	if err != nil {
		// After some errors SQLite has done so by itself.
		_ = j.store.exec("ROLLBACK")
		return err
	}
	j.advanced(next, finished)
	return j.committed(r)
}

// advance writes the row and the next piece in the transaction at hand.
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
	j.pages += 2 * pieceRows
	if next.done && !j.snapshot.done {
		j.header, j.entries = next.header, 0
		next.content.Claims, next.content.Sessions = nil, nil
	}
	j.snapshot = &next
	if finished {
		j.snapshot = nil
	}
}

// committed records that the row is safe, and writes the mark. Only then are callers answered.
func (j *journal) committed(r *row) error {
	if r == nil {
		return nil
	}
	j.seq, j.chain, j.after = r.seq, r.sum, r.after
	j.entries += r.count
	j.pages += len(r.entries)/4096 + 2
	j.stats.syncs.Add(1)
	j.stats.entries.Add(int64(r.count))
	j.stats.last.Store(time.Now().UnixNano())
	if err := j.marker.write(j.seq, j.after.Fences); err != nil {
		// The mark only helps to find losses.
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
	switch err := j.store.checkpoint(false); {
	case err == nil:
		j.pages = 0
	case isFull(err):
		j.pages = 0 // the log grows on; try again later
	default:
		j.poison(err)
	}
}

// finish makes the whole table a snapshot and marks the database as closed.
func (j *journal) finish() {
	err := j.close()
	switch {
	case err == nil:
	case isFull(err): // the journal has all that the snapshot would have
		j.store.close()
	default:
		j.poison(err)
	}
}

// close does the work of finish. After an error the journal is as it was, and the next opening replays
// it.
func (j *journal) close() error {
	if j.snapshot != nil && !j.snapshot.done {
		j.tries++ // what was written of it goes with all else that is old
	}
	j.beginSnapshot()
	for j.snapshot != nil && !j.snapshot.done {
		if err := j.commitPieces(); err != nil {
			return err
		}
	}
	if err := j.store.checkpoint(true); err != nil {
		return err
	}
	return j.store.close()
}

// commitPieces writes many pieces in one transaction, because no caller waits any more. With the last
// piece it closes the database.
func (j *journal) commitPieces() error {
	if err := j.store.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	next, err := j.store.piece(*j.snapshot, 100*pieceRecords)
	if err == nil && next.done {
		if err = j.store.forgetAll(&next.header); err == nil {
			err = j.store.exec("UPDATE meta SET state = ?", stateClosed)
		}
	}
	if err == nil {
		err = j.store.exec("COMMIT")
	}
	if err != nil {
		_ = j.store.exec("ROLLBACK")
		return err
	}
	j.snapshot = &next
	return nil
}
