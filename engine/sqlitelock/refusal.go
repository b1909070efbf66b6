package sqlitelock

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lockkeeper/lockkeeper"
)

// resultCode is the primary result code of an error of SQLite; 0 of others.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool { return resultCode(err) == sqlite3.SQLITE_BUSY }

// refusal turns an error of opening the file into one that says what is wrong and what to do.
func (db *database) refusal(err error) error {
	var refused *lockkeeper.Error
	if errors.As(err, &refused) {
		return refused
	}
	switch code := resultCode(err); {
	case code == sqlite3.SQLITE_NOTADB:
		return lockkeeper.Invalid("%s is no SQLite database: name a file that is new, or one of lockkeeper's", db.path)
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_ERROR, code == sqlite3.SQLITE_MISMATCH,
		errors.Is(err, errRows):
		return lockkeeper.Invalid("%s is damaged (%v): once nobody uses it, remove it and what lies beside it under its "+
			"name; all locks in it end", db.path, err)
	}
	return db.unusable(err)
}

// unusable turns an error of using the file into an ErrUnavailable that says what is wrong and what
// to do.
func (db *database) unusable(err error) error {
	var refused *lockkeeper.Error
	switch {
	case !errors.As(err, &refused):
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: db.words(err), Cause: err}
	case refused.Err != lockkeeper.ErrUnavailable: // the file has changed since it was opened
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: refused.Detail}
	}
	return refused
}

// words returns what an error of SQLite means, and what to do about it.
func (db *database) words(err error) string {
	switch resultCode(err) {
	case 0:
		return "" // not an error of SQLite: its own text says enough
	case sqlite3.SQLITE_FULL:
		return fmt.Sprintf("the disk is full: make room on the file system of %s, and it goes on by itself", db.path)
	case sqlite3.SQLITE_IOERR:
		return fmt.Sprintf("the system could not read or write %s: look for a failing disk, a quota or a limit on the "+
			"size of files (ulimit -f)", db.path)
	case sqlite3.SQLITE_BUSY:
		return db.keptBusy()
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Sprintf("%s is damaged: once nobody uses it, remove it and what lies beside it under its name; all "+
			"locks in it end", db.path)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return db.notWritable().Detail
	case sqlite3.SQLITE_NOMEM:
		return "this process has no memory left"
	}
	return "using " + db.path
}

// keptBusy returns the message for SQLite's lock that another program keeps. Any goroutine may call
// it, since db.path never changes.
func (db *database) keptBusy() string {
	return fmt.Sprintf("another program keeps %s to itself, such as sqlite3 in a transaction, or a backup, or a "+
		"process that was stopped: end it (fuser %s lists who has the file open)", db.path, db.path)
}

// notWritable is the error of a file that this process may not write.
func (db *database) notWritable() *lockkeeper.Error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Detail: db.path + " can't be opened for writing: " + db.whyNotWritable(),
	}
}

// whyNotWritable says what keeps this process from using the file.
func (db *database) whyNotWritable() string {
	return cmp.Or(db.obstacle(), "its directory must exist, and both must be writable")
}

// obstacle looks for what keeps this process from using the file, without opening
// anything; "" if nothing is found.
func (db *database) obstacle() string {
	path, folder := db.path, filepath.Dir(db.path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("its directory does not exist: make it (mkdir -p %s), or name another file", folder)
	case err == nil && !info.IsDir():
		return folder + " is a file and no directory: name another place"
	case err != nil:
		return fmt.Sprintf("its directory can't be looked at (%v)", err)
	}
	if _, err := os.Stat(path); err == nil {
		if err := access(path); err != nil {
			return fmt.Sprintf("this user (%s) may not read and write it (%v; %s): "+
				"let them, with its group for instance, or name another file",
				db.me, err, ownership(path))
		}
	}
	if err := access(folder); err != nil {
		return fmt.Sprintf("this user (%s) may not make files in its directory, as SQLite must (%v; %s): "+
			"let them, with its group for instance, or name another file", db.me, err, ownership(folder))
	}
	for _, beside := range []string{"-wal", "-shm"} {
		if info, err := os.Lstat(path + beside); err == nil && info.Mode().IsRegular() && access(path+beside) != nil {
			return fmt.Sprintf("this user (%s) may not write %s (%s): "+
				"once nobody uses it, give all files there one group and one mode",
				db.me, path+beside, ownership(path+beside))
		}
	}
	return ""
}

// refusePlanted refuses a file if another user has put something beside it that SQLite would take
// for its own: SQLite would trust its content, or wait for it forever.
func (db *database) refusePlanted(file fs.FileInfo) error {
	for _, beside := range []string{"-wal", "-shm", "-journal"} {
		info, err := os.Lstat(db.path + beside)
		if err != nil {
			continue
		}
		why := ""
		switch {
		case !info.Mode().IsRegular():
			why = "is " + kindOf(info) + ", and no file"
		case !trusted(info, file, db.me):
			why = "belongs to another user (" + ownershipOf(info) + ")"
		default:
			continue
		}
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
			"%s, which is SQLite's, %s, and %s is not used: look at what it is, then move it away or remove it",
			db.path+beside, why, db.path)}
	}
	return nil
}
