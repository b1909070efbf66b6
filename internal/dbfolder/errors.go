package dbfolder

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrDamage marks errors of a database with lost or changed content.
var ErrDamage = errors.New("damage")

// Damagef returns an ErrDamage with this text.
func Damagef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamage}, args...)...)
}

// resultCode returns the primary result code of an error of SQLite; 0 for other errors.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// IsFull reports whether err says that the disk is full. Then SQLite has rolled back or can roll
// back, and the caller may repeat the transaction.
func IsFull(err error) bool { return resultCode(err) == sqlite3.SQLITE_FULL }

// Describe explains an error to a person, and says what the person can do. remedy is what can be done
// about damage.
func Describe(path string, err error, remedy string) string {
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
		return fmt.Sprintf("%s is damaged; nothing was changed; %s", path, remedy)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return fmt.Sprintf("%s can't be opened for writing: the directory and all in it must be readable and writable for "+
			"this user", path)
	}
	return "using " + path
}

// IsDamage reports whether err says that the content of the database is lost or changed. Other
// errors may pass, such as those of a disk that can't be read now.
func IsDamage(err error) bool {
	switch resultCode(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH:
		return true
	}
	return errors.Is(err, ErrDamage)
}

// FromSQLite reports whether SQLite returned err, and not package sql or the system.
func FromSQLite(err error) bool { return resultCode(err) != 0 }
