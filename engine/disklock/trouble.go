package disklock

import (
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lockkeeper/lockkeeper"
)

// setTrouble starts refusing commands because of t, or stops if t is nil. Only the writer and the
// journal's constructor call it.
func (j *journal) setTrouble(t *trouble) {
	was := j.trouble.Swap(t)
	if (was == nil) == (t == nil) {
		return
	}
	if t != nil {
		close(*j.stuck.Load())
	} else {
		stuck := make(chan struct{})
		j.stuck.Store(&stuck)
		j.safe = nil
	}
	if changed := j.changed.Load(); changed != nil {
		(*changed)()
	}
}

// readSafe reads the safe table from the disk, which takes as long as Open. The writer calls it
// while the disk is full, when it has no other work.
func (j *journal) readSafe() safeTable {
	if j.safe == nil {
		t, err := j.store.replayed(j.seq)
		if err != nil {
			return safeTable{err: err} // the next request tries again
		}
		j.safe = &safeTable{table: t}
	}
	return *j.safe
}

var errInUse = errors.New("in use")

// trouble is a reason for which Admit refuses commands.
type trouble struct {
	err     *lockkeeper.Error
	passing bool // the trouble may end; until then Admit still accepts commands without relies
}

// unavailable returns an ErrUnavailable with this detail.
func unavailable(cause error, format string, args ...any) *lockkeeper.Error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(format, args...), Cause: cause}
}

// describe explains an error to a person, and says what the person can do.
func describe(path string, err error) string {
	switch resultCode(err) {
	case sqlite3.SQLITE_FULL:
		return fmt.Sprintf("the disk is full: make room on the file system of %s, and it goes on by itself", path)
	case sqlite3.SQLITE_IOERR:
		return fmt.Sprintf("the system could not read or write %s: look for a failing disk, a quota or a limit on the "+
			"size of files (ulimit -f)", path)
	case sqlite3.SQLITE_BUSY:
		return fmt.Sprintf("another program keeps %s to itself, such as sqlite3 or a backup: end it (fuser %s lists who "+
			"has the file open)", path, path)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Sprintf("%s is no SQLite database: name a directory that is new, or one of lockkeeper's", path)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH:
		return fmt.Sprintf("%s is damaged; nothing was changed; see docs/engines/disk.md for what can be done", path)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return fmt.Sprintf("%s can't be opened for writing: the directory and all in it must be readable and writable for "+
			"this user", path)
	}
	return "using " + path
}
