package sqlitelock

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/migrations"
)

// How long to wait for SQLite's own lock, which others hold for a commit.
const (
	firstBusyPause = 100 * time.Microsecond
	lastBusyPause  = 4 * time.Millisecond
	busyTimeout    = 10 * time.Second
	busyIsStrange  = time.Second // no commit takes so long: the error of a caller that gives up says so
)

// database is one connection to the file. It is not safe for concurrent use.
//
// This package must not open the file by other means: closing any descriptor of it drops the locks
// that SQLite has on it in this process.
type database struct {
	path     string      // absolute, without symbolic links
	me       actor       // the user that uses it
	file     fs.FileInfo // the file that was opened; nil before
	options  options
	schema   migrations.Schema
	log      fs.FileInfo // the log of the connection
	size     int64       // of the file, which never shrinks
	foundLog bool        // it had a log before it was opened
	pool     *sql.DB     // of one connection; nil after a failure, until the next use
	conn     *sql.Conn
	blocked  atomic.Bool // another process has kept SQLite's lock for longer than busyIsStrange
	stmts    [statements]*sql.Stmt

	commitFault func(commit func() error) error // of tests: replaces the commit
}

func (db *database) exec(statement string) error {
	_, err := db.conn.ExecContext(context.Background(), statement)
	return err
}

// writeAhead switches to a write-ahead log, in which readers and the writer do not wait for each
// other, and makes each commit reach the disk.
func (db *database) writeAhead() error {
	var mode string
	if err := db.conn.QueryRowContext(context.Background(), "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode %s): use a local one", mode)
	}
	if db.options.careless {
		return db.exec("PRAGMA synchronous = OFF")
	}
	return db.exec("PRAGMA synchronous = FULL")
}

// prepare prepares all statements.
func (db *database) prepare() error {
	for i, text := range statementTexts() {
		stmt, err := db.conn.PrepareContext(context.Background(), text)
		if err != nil {
			return fmt.Errorf("statement %d: %w", i, err)
		}
		db.stmts[i] = stmt
	}
	return nil
}

func (db *database) run(s statement, args ...any) error {
	_, err := db.stmts[s].ExecContext(context.Background(), args...)
	return err
}

// ready makes sure that there is a connection, and that the path still leads to the file that it
// uses: other processes that open the path would not see its locks otherwise. reload: all rows must
// be read again.
func (db *database) ready(ctx context.Context) (reload bool, err error) {
	info, err := os.Stat(db.path)
	if err != nil {
		return false, fmt.Errorf("%w (%w)", db.removed(), err)
	}
	if !os.SameFile(info, db.file) {
		return false, db.removed()
	}
	if db.pool != nil {
		log, err := os.Stat(db.path + "-wal")
		if err != nil || !os.SameFile(log, db.log) {
			// The last process to close the file saves the content of the log.
			return false, fmt.Errorf("%s-wal was removed or replaced while it was in use: leave it alone, as long as anybody "+
				"uses the file", db.path)
		}
		if info.Size() >= db.size {
			db.size = info.Size()
			return false, nil
		}
		db.disconnect() // another program has shortened the file: read the remaining rows
	}
	if err := db.connect(ctx); err != nil {
		db.disconnect()
		return false, err
	}
	db.size = info.Size()
	return true, nil
}

// removed is the error of a path that no longer leads to the file that was opened.
func (db *database) removed() error {
	return fmt.Errorf("%s was removed or replaced while it was in use: restart what uses it, and leave it alone as "+
		"long as anybody does", db.path)
}

// disconnect closes the connection; the next use makes a new one. SQLite rolls back what was not
// committed.
func (db *database) disconnect() {
	for i, stmt := range db.stmts {
		if stmt != nil {
			stmt.Close()
			db.stmts[i] = nil
		}
	}
	if db.conn != nil {
		db.conn.Close()
		db.conn = nil
	}
	if db.pool != nil {
		db.pool.Close()
		db.pool = nil
	}
}

// begin begins a transaction. A writing one excludes all other writers from its begin on.
func (db *database) begin(writes bool) error {
	if writes {
		return db.run(beginImmediate)
	}
	return db.run(beginDeferred)
}

func (db *database) commit() error {
	if db.commitFault != nil {
		return db.commitFault(func() error { return db.run(commit) })
	}
	return db.run(commit)
}

func (db *database) rollback() error { return db.run(rollback) }

// patiently repeats do while another process has SQLite's lock, until ended returns an error.
// (SQLite's own wait can't be interrupted, and soon sleeps for 100 ms.)
func (db *database) patiently(ended func() error, do func() error) error {
	var timer *time.Timer
	began := time.Now()
	defer db.blocked.Store(false)
	for pause := firstBusyPause; ; pause = min(2*pause, lastBusyPause) {
		err := do()
		if !isBusy(err) {
			return err
		}
		waited := time.Since(began)
		db.blocked.Store(waited > busyIsStrange)
		if waited > busyTimeout {
			return fmt.Errorf("for %s: %w", busyTimeout, err)
		}
		d := pause/2 + rand.N(pause/2)
		if timer == nil {
			timer = time.NewTimer(d)
			defer timer.Stop()
		} else {
			timer.Reset(d)
		}
		<-timer.C
		if why := ended(); why != nil {
			return fmt.Errorf("%w, %w", err, why)
		}
	}
}
