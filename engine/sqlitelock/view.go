package sqlitelock

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Look opens the locks in a file for reading only: it creates no file, changes no row and removes
// nothing. If the file has never held locks, the error is an [fs.ErrNotExist] too. The engine
// refuses all calls but List and Examine with ErrUnsupported. List already shows the changes that
// the next writer would record first: the end of sessions whose processes are dead or whose TTL has
// passed, and a restart of the computer.
//
// SQLite may still create and write its index of the log, FILE-shm: readers share it with writers.
func Look(ctx context.Context, path string) (*Engine, error) {
	boot, err := bootID()
	if err != nil {
		return nil, unavailable(err)
	}
	return open(ctx, path, options{looks: true}, newBootClock(), boot)
}

// view is the table that a read-only process shows: a copy in which time has passed and sessions of
// dead processes have ended. It exists only where it differs from the table.
type view struct {
	table    *table.Table
	version  int64                   // of the rows that it copies
	reported map[lockkeeper.Ref]bool // claims whose end watchers have received before it is in the rows
}

// shown returns the table from which List reads.
func (e *Engine) shown() *table.Table {
	if e.view != nil {
		return e.view.table
	}
	return e.cache.table
}

// recorded reports whether watchers have received an end that is in the rows now.
func (v *view) recorded(ref lockkeeper.Ref) bool {
	found := v != nil && v.reported[ref]
	if found {
		delete(v.reported, ref)
	}
	return found
}

// simulate updates the view to this moment.
func (tx *transaction) simulate(rebooted bool) error {
	e := tx.e
	var dead []lockkeeper.Key
	for id, s := range e.cache.sessions {
		if s.file != "" && (rebooted || e.folder.state(s.file) == fileFree) {
			dead = append(dead, lockkeeper.Key{Session: id, Epoch: s.epoch})
		}
	}
	now := tx.now
	if rebooted {
		now = tx.meta.counters.Now // time stands still until the next write
	}
	at, due := e.cache.table.Next()
	old := e.view
	if e.view == nil || e.view.version != e.cache.version {
		e.view = nil
		if len(dead) == 0 && !rebooted && !(due && at <= now) {
			return nil
		}
		copied, err := table.Restore(e.cache.table.Snapshot())
		if err != nil {
			return err
		}
		copied.Track()
		e.view = &view{table: copied, version: e.cache.version, reported: make(map[lockkeeper.Ref]bool)}
		if old != nil {
			e.view.reported = old.reported
		}
	}
	for _, k := range dead {
		if e.view.table.Open(k.Session) {
			tx.simulateStep(table.Command{Op: table.Gone, Key: k, At: now})
		}
	}
	tx.simulateStep(table.Command{Op: table.Pass, At: now})
	return nil
}

// simulateStep applies one step to the view. Watchers get each end once, however often the view is
// rebuilt.
func (tx *transaction) simulateStep(c table.Command) {
	v := tx.e.view
	_, _ = v.table.Step(&c) // never refused
	for _, ev := range v.table.Events() {
		tx.external.any, tx.external.anything = true, true
		if ev.Path != "" {
			continue
		}
		if st, ok := v.table.Status(ev.Ref); ok && st.State == lockkeeper.Ended && !v.reported[ev.Ref] {
			v.reported[ev.Ref] = true
			tx.external.ended = append(tx.external.ended, st)
		}
	}
}

// lookAtFile returns an error if the file has no locks to show.
func (db *database) lookAtFile(kind fileKind) error {
	switch kind {
	case empty:
		return &lockkeeper.Error{
			Err: lockkeeper.ErrUnavailable, Detail: db.path + " is empty: nothing was ever locked in it", Cause: fs.ErrNotExist,
		}
	case older:
		return lockkeeper.Invalid("%s is of an older version: the first lock (lk run, lk grab) brings it up to date", db.path)
	}
	return db.exec("PRAGMA query_only = ON")
}

// leaveLooked closes a read-only connection. The last connection to close a file would move the
// content of the log into it, unless it can't write.
func (db *database) leaveLooked() {
	log, err := os.Stat(db.path + "-wal")
	db.foundLog = db.foundLog && !errors.Is(err, fs.ErrNotExist) || err == nil && log.Size() > 0
	db.leaveUntouched()
}
