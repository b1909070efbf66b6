package dbfolder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// DB is one connection to the database. One goroutine at a time uses it.
type DB struct {
	Path   string
	Conn   *sql.Conn
	driver string
	pool   *sql.DB
	syncs  bool     // Sync has something to do
	log    *os.File // of SQLite's log, for Sync; nil before the first

	prepared []*sql.Stmt
}

// A Use says what a connection is for.
type Use struct {
	Driver   string // of package sql; "sqlite" if empty
	Alone    bool   // SQLite locks the database against all other processes, including readers
	Careless bool   // it does not wait for the disk
	OwnSync  bool   // its owner calls DB.Sync after each commit, before it relies on it
	Still    bool   // no process changes the files; SQLite takes no locks, and reads no log
}

// OpenDB connects to the file, and creates it if it does not exist and is not Still.
func OpenDB(path string, use Use) (*DB, error) {
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if use.Still {
		address.RawQuery = "mode=ro&immutable=1"
	}
	db := &DB{Path: path, driver: use.Driver}
	if db.driver == "" {
		db.driver = "sqlite"
	}
	pool, err := sql.Open(db.driver, address.String())
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	db.pool = pool
	if db.Conn, err = pool.Conn(context.Background()); err != nil {
		pool.Close()
		return nil, err
	}
	if err := db.set(use); err != nil {
		db.CloseUnchanged()
		return nil, err
	}
	return db, nil
}

// set configures the connection. SQLite keeps the log when the connection closes, so a missing log
// means that somebody removed it.
func (db *DB) set(use Use) error {
	err := db.Conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
	pragmas := []string{"busy_timeout = 0", "wal_autocheckpoint = 0", "synchronous = FULL", "cell_size_check = ON"}
	if use.Alone {
		pragmas = append(pragmas, "locking_mode = EXCLUSIVE")
	}
	if db.syncs = use.OwnSync && syncsData && !use.Careless; db.syncs {
		pragmas = append(pragmas, "synchronous = NORMAL") // the log is synced before it restarts, and before a checkpoint
	}
	if use.Careless {
		pragmas = append(pragmas, "synchronous = OFF")
	}
	for _, pragma := range pragmas {
		if err == nil {
			err = db.Exec("PRAGMA " + pragma)
		}
	}
	return err
}

// Exec executes a statement.
func (db *DB) Exec(statement string, args ...any) error {
	_, err := db.Conn.ExecContext(context.Background(), statement, args...)
	return err
}

// Sync makes the commits of a connection with OwnSync durable, if COMMIT alone does not. SQLite would use
// fsync, which waits for the time of the file too; fdatasync waits for content and length alone. After an
// error nobody knows what is durable.
func (db *DB) Sync() (err error) {
	if !db.syncs {
		return nil
	}
	if db.log == nil {
		if db.log, err = os.Open(LogPath(db.Path)); err != nil {
			return err
		}
	}
	return syncData(db.log)
}

// Prepare prepares a statement, which Close closes.
func (db *DB) Prepare(statement string) (*sql.Stmt, error) {
	s, err := db.Conn.PrepareContext(context.Background(), statement)
	if err == nil {
		db.prepared = append(db.prepared, s)
	}
	return s, err
}

// Query reads one row.
func (db *DB) Query(statement string, to ...any) error {
	return db.Conn.QueryRowContext(context.Background(), statement).Scan(to...)
}

// Close closes the connection. The log stays.
func (db *DB) Close() error {
	for _, s := range db.prepared {
		s.Close() // a statement that is open would keep the connection open, with its locks
	}
	if db.log != nil {
		db.log.Close()
	}
	if db.Conn != nil {
		db.Conn.Close()
	}
	return db.pool.Close()
}

// CloseUnchanged closes a refused database without changing it. SQLite checkpoints the log when the
// last connection closes, so a read-only connection must close last. It opens the file only when it
// reads, so it reads the version, which needs no schema. If it can't read the version, db could not
// have checkpointed the log either.
func (db *DB) CloseUnchanged() {
	address := url.URL{Scheme: "file", Path: filepath.ToSlash(db.Path), RawQuery: "mode=ro"}
	if reader, err := sql.Open(db.driver, address.String()); err == nil {
		defer reader.Close()
		reader.SetMaxOpenConns(1)
		var version int
		_ = reader.QueryRow("PRAGMA user_version").Scan(&version)
	}
	db.Close()
}

// Checkpoint moves the log into the database and syncs the database. If truncate is set, the log is
// empty afterwards.
func (db *DB) Checkpoint(truncate bool) error {
	how := "PASSIVE"
	if truncate {
		how = "TRUNCATE"
	}
	var busy, log, moved int
	if err := db.Query("PRAGMA wal_checkpoint("+how+")", &busy, &log, &moved); err != nil {
		return err
	}
	if busy != 0 || log != moved {
		return fmt.Errorf("only %d of %d pages of the log could be moved into %s: another program reads it", moved, log,
			db.Path)
	}
	return nil
}

// Check makes SQLite check its own structures.
func (db *DB) Check(ctx context.Context) error {
	rows, err := db.Conn.QueryContext(ctx, "PRAGMA quick_check(3)")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if line != "ok" {
			return Damagef("SQLite finds: %s", line)
		}
	}
	return rows.Err()
}

// HasContent reports whether the file exists and is not empty.
func HasContent(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// SyncFolder syncs the directory itself.
func SyncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// BootID returns the id of this boot of the computer; "" if the system has none.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
