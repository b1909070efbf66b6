package sqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/lockkeeper/lockkeeper"
)

//go:embed schema.sql
var schema string

// What marks a file as ours.
const (
	applicationID = 0x6c6f636b
	schemaVersion = 1
)

// How long to wait for SQLite's own lock, which others hold for a commit.
const (
	firstBusyPause = 100 * time.Microsecond
	lastBusyPause  = 4 * time.Millisecond
	busyTimeout    = 10 * time.Second
)

// database is one connection to the file. It is not safe for concurrent use.
//
// Nothing here may open the file itself by other means: closing any descriptor
// of it drops the locks that SQLite has on it in this process.
type database struct {
	path     string      // absolute
	file     fs.FileInfo // which file it was when it was opened; nil before
	careless bool        // see options
	pool     *sql.DB     // of one connection; nil after a failure, until the next use
	conn     *sql.Conn
	stmts    [statements]*sql.Stmt

	commitFault func(commit func() error) error // of tests: stands between us and the commit
}

// openDatabase opens the file, or makes it. It refuses what is not ours.
func openDatabase(ctx context.Context, path string, careless bool) (*database, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db := &database{path: absolute, careless: careless}
	if info, err := os.Stat(absolute); err == nil && info.IsDir() {
		return nil, lockkeeper.Invalid("%s is a directory: name a file in it, such as %s", path, filepath.Join(path, "locks.db"))
	}
	if err := db.connect(ctx); err != nil {
		db.disconnect()
		return nil, db.refusal(err)
	}
	return db, nil
}

// connect makes the connection that is not there.
func (db *database) connect(ctx context.Context) error {
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(db.path)}
	if db.file != nil {
		address.RawQuery = "mode=rw" // it was there, and must not be made anew
	}
	pool, err := sql.Open("sqlite", address.String())
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	db.pool = pool
	if db.conn, err = pool.Conn(ctx); err != nil {
		return err
	}
	if err := db.exec("PRAGMA busy_timeout = 0"); err != nil { // patiently does better
		return err
	}
	if err := db.patiently(ctx.Err, db.identify); err != nil {
		return err
	}
	if err := db.patiently(ctx.Err, db.writeAhead); err != nil {
		return err
	}
	info, err := os.Stat(db.path)
	if err != nil {
		return err
	}
	if db.file == nil {
		db.file = info
	}
	return db.prepare()
}

// identify makes sure that the file is ours, and fills it if it is new.
func (db *database) identify() error {
	kind, err := db.kind()
	if err != nil || kind == ours {
		return err
	}
	if err := db.writeAhead(); err != nil {
		return err
	}
	if err := db.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer db.exec("ROLLBACK") // without effect after the commit
	// Another process may have been faster.
	if kind, err = db.kind(); err != nil || kind == ours {
		return err
	}
	if err := db.exec(schema); err != nil {
		return err
	}
	return db.exec("COMMIT")
}

type fileKind int

const (
	empty fileKind = iota
	ours
)

// kind tells an empty file from one of ours, and refuses all others.
func (db *database) kind() (fileKind, error) {
	var application, version, tables int
	row := db.conn.QueryRowContext(context.Background(),
		"SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version")
	if err := row.Scan(&application, &version, &tables); err != nil {
		return 0, err
	}
	switch {
	case application == 0 && version == 0 && tables == 0:
		return empty, nil
	case application != applicationID:
		return 0, lockkeeper.Invalid("%s is the SQLite database of another program (application id %#x, %d tables and indexes): name a file that is new, or one of lockkeeper's",
			db.path, application, tables)
	case version != schemaVersion:
		return 0, lockkeeper.Invalid("%s has version %d, this program knows version %d: use the program that made it, or a new file", db.path, version, schemaVersion)
	}
	return ours, nil
}

// writeAhead switches to a write-ahead log, in which readers and the writer
// don't wait for each other, and has each commit reach the disk.
func (db *database) writeAhead() error {
	var mode string
	if err := db.conn.QueryRowContext(context.Background(), "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode %s): use a local one", mode)
	}
	if db.careless {
		return db.exec("PRAGMA synchronous = OFF")
	}
	return db.exec("PRAGMA synchronous = FULL")
}

func (db *database) exec(statement string) error {
	_, err := db.conn.ExecContext(context.Background(), statement)
	return err
}

// prepare prepares all statements.
func (db *database) prepare() error {
	for i, text := range statementTexts {
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

// ready connects anew after a failure, and makes sure that the path still leads
// to the file that was opened: whoever opens the path now would else not see our locks.
func (db *database) ready(ctx context.Context) error {
	info, err := os.Stat(db.path)
	if err != nil {
		return fmt.Errorf("the file is gone: %w", err)
	}
	if !os.SameFile(info, db.file) {
		return fmt.Errorf("%s is another file than the one that was opened: restart this program", db.path)
	}
	if db.pool != nil {
		return nil
	}
	if err := db.connect(ctx); err != nil {
		db.disconnect()
		return err
	}
	return nil
}

// disconnect closes the connection; the next use makes a new one. What was not
// committed is rolled back.
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

// begin begins a transaction. A writing one excludes all other writers from its
// begin on, so what it reads stays true until it commits.
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

// patiently repeats do while another process has SQLite's lock, until ended says
// why not to. (SQLite's own way to wait can't be interrupted, and soon sleeps
// for 100 ms.)
func (db *database) patiently(ended func() error, do func() error) error {
	var timer *time.Timer
	began := time.Now()
	for pause := firstBusyPause; ; pause = min(2*pause, lastBusyPause) {
		err := do()
		if !isBusy(err) {
			return err
		}
		if time.Since(began) > busyTimeout {
			return fmt.Errorf("other processes have kept %s locked for %s: %w", db.path, busyTimeout, err)
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
			return fmt.Errorf("other processes keep %s locked: %w", db.path, why)
		}
	}
}

// resultCode is the primary result code of an error of SQLite; 0 of others.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool { return resultCode(err) == sqlite3.SQLITE_BUSY }

// refusal is the error of a file that can't be opened: what, where, and what
// would be right.
func (db *database) refusal(err error) error {
	var told *lockkeeper.Error
	if errors.As(err, &told) {
		return err
	}
	code := resultCode(err)
	if code == sqlite3.SQLITE_CANTOPEN || code == sqlite3.SQLITE_READONLY || code == sqlite3.SQLITE_PERM {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err,
			Detail: fmt.Sprintf("%s can't be opened for writing: its directory must exist, and both must be writable", db.path)}
	}
	switch {
	case code == sqlite3.SQLITE_NOTADB:
		return lockkeeper.Invalid("%s is no SQLite database: name a file that is new, or one of lockkeeper's", db.path)
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_ERROR, code == sqlite3.SQLITE_MISMATCH, errors.Is(err, errRows):
		return lockkeeper.Invalid("%s is damaged (%v): once nobody uses it, remove it and what lies beside it under its name; all locks in it end", db.path, err)
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "opening " + db.path, Cause: err}
}
