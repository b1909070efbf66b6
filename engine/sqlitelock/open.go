package sqlitelock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// applicationID marks a file as ours.
const applicationID = 0x6c6f636b

// making is held while this process creates a file and closes it again. Closing a file drops all
// locks that the process has on it: so no other engine of the process may connect in between.
var making sync.Mutex

// openDatabase opens the file at a path without links, or creates it. It refuses a file that is not
// Lockkeeper's, and leaves it unchanged.
func openDatabase(ctx context.Context, real string, me actor, o options) (*database, error) {
	db := &database{path: real, me: me, options: o, schema: ownSchema()}
	if o.schema != nil {
		db.schema = *o.schema
	}
	if err := refuseNetwork(filepath.Dir(real), fileSystemOf); err != nil {
		return nil, err
	}
	if err := db.peek(ctx); err != nil {
		return nil, err
	}
	_, err := os.Stat(real + "-wal")
	db.foundLog = err == nil
	if err := db.connect(ctx); err != nil {
		db.leaveUntouched()
		return nil, db.refusal(err)
	}
	return db, nil
}

// address returns the URI of the file for the driver, with parameters of SQLite.
func (db *database) address(parameters string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(db.path), RawQuery: parameters}
	return u.String()
}

// dial opens one connection.
func (db *database) dial(ctx context.Context, parameters string) (*sql.DB, *sql.Conn, error) {
	pool, err := sql.Open(cmp.Or(db.options.driver, "sqlite"), db.address(parameters))
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(ctx)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, conn, nil
}

// connect connects to the file. There must be no connection.
func (db *database) connect(ctx context.Context) (err error) {
	// SQLite would open a file that this user may only read, and create the log and its index as this
	// user. Then no other user could write.
	if db.obstacle() != "" {
		return db.notWritable()
	}
	if db.file == nil && !db.options.looks {
		if err := db.makeFile(); err != nil {
			return err
		}
	}
	before, err := os.Stat(db.path)
	if err != nil && db.file == nil {
		return fmt.Errorf("%s does not exist: nothing was ever locked in it (%w)", db.path, err)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", db.removed(), err)
	}
	if err := db.refusePlanted(before); err != nil {
		return err
	}
	if db.pool, db.conn, err = db.dial(ctx, "mode=rw"); err != nil { // the file exists
		return err
	}
	if access(db.path) != nil { // another user has just created it
		return db.notWritable()
	}
	if err := db.sameFile(before); err != nil {
		return err
	}
	if err := db.exec("PRAGMA busy_timeout = 0"); err != nil { // db.patiently waits instead
		return err
	}
	if err := db.patiently(ctx.Err, func() error { return db.identify(ctx) }); err != nil {
		return err
	}
	if !db.options.looks {
		if err := db.patiently(ctx.Err, db.writeAhead); err != nil {
			return err
		}
	}
	if err := db.sameFile(nil); err != nil {
		return err
	}
	if err := db.prepare(); err != nil {
		return err
	}
	if err := db.refusePlanted(db.file); err != nil { // again: they may be newer than the first check
		return err
	}
	db.log, err = os.Stat(db.path + "-wal")
	return err
}

// close closes the connection for good.
func (db *database) close() {
	if db.options.looks {
		db.leaveLooked()
	} else {
		db.disconnect()
	}
}

// makeFile creates an empty file if there is none: for its owner alone, or for the group too if the
// directory hands its group down, whatever the umask. SQLite's files and session files get its
// mode.
func (db *database) makeFile() error {
	making.Lock()
	defer making.Unlock()
	if _, err := os.Lstat(db.path); err == nil {
		return nil // the process that made it has chosen its mode
	}
	directory, err := os.Stat(filepath.Dir(db.path))
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if handsDown(directory) {
		mode = 0o660
	}
	f, err := os.OpenFile(db.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// sameFile returns an error if the path no longer leads to the file that this engine uses. The
// first connection passes before: the file that was at the path, nil if there was none.
func (db *database) sameFile(before fs.FileInfo) error {
	now, err := os.Stat(db.path)
	if err != nil {
		return fmt.Errorf("%w (%w)", db.removed(), err)
	}
	if db.file != nil {
		before = db.file
	}
	if before != nil && !os.SameFile(before, now) {
		return db.removed()
	}
	db.file = now
	return nil
}

// identify refuses a file that is not ours, and migrates a file that is new or of an older version.
// Of a current file it only reads the header.
func (db *database) identify(ctx context.Context) error {
	kind, err := db.kind(db.conn)
	if err != nil || kind == current && !db.options.looks {
		return err
	}
	if db.options.looks {
		return db.lookAtFile(kind)
	}
	if n := links(db.file); kind == empty && n > 1 {
		return lockkeeper.Invalid("%s is empty and has %d names, and may be somebody else's by another: "+
			"name a file that is new", db.path, n)
	}
	if kind == empty {
		if err := db.writeAhead(); err != nil {
			return err
		}
	}
	return db.migrate(ctx)
}

type fileKind int

const (
	empty   fileKind = iota
	older            // ours, of a version that this program can bring up to date
	current          // ours
)

// kind returns the kind of the file. It refuses the file of another program, and a file of a newer
// version.
func (db *database) kind(conn *sql.Conn) (fileKind, error) {
	var application, version, tables int
	row := conn.QueryRowContext(context.Background(),
		"SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, "+
			"pragma_user_version")
	if err := row.Scan(&application, &version, &tables); err != nil {
		return 0, err
	}
	switch {
	case application == 0 && version == 0 && tables == 0:
		return empty, nil
	case application != applicationID:
		return 0, lockkeeper.Invalid("%s is the SQLite database of another program (application id %#x, %d tables and "+
			"indexes): name a file that is new, or one of lockkeeper's",
			db.path, application, tables)
	case version > db.schema.Latest:
		return 0, lockkeeper.Invalid("%s has version %d, which a newer program made; this one knows version %d and older: "+
			"update this program and restart it, or name another file",
			db.path, version, db.schema.Latest)
	case version < 1:
		return 0, fmt.Errorf("%w: it has version %d", errRows, version)
	case version < db.schema.Latest:
		return older, nil
	}
	return current, nil
}

// peek refuses the file of another program if it has a rollback journal, as after a kill in a
// transaction: SQLite would roll back that transaction as soon as this program reads the file. Our
// own files have such a journal only while they are created.
func (db *database) peek(ctx context.Context) error {
	if _, err := os.Lstat(db.path + "-journal"); err != nil {
		return nil
	}
	pool, conn, err := db.dial(ctx, "mode=ro&immutable=1") // reads the file alone, without its journal
	if err != nil {
		return nil // connect reports the error
	}
	defer pool.Close()
	defer conn.Close()
	var refused *lockkeeper.Error
	if _, err := db.kind(conn); errors.As(err, &refused) {
		return err
	}
	return nil
}

// leaveUntouched closes the connection to a file that this program must not change. The last
// connection to a file moves the content of the log into the file when it closes. So if there was a
// log, leaveUntouched closes last a connection that can't write.
func (db *database) leaveUntouched() {
	if db.pool == nil || !db.foundLog {
		db.disconnect()
		return
	}
	if pool, conn, err := db.dial(context.Background(), "mode=ro"); err == nil {
		defer pool.Close()
		defer conn.Close()
		// SQLite counts a connection as a user of the file once it has read something. If this one
		// can't read, the other one can't move the log either.
		_, _ = conn.ExecContext(context.Background(), "SELECT count(*) FROM sqlite_schema")
	}
	db.disconnect()
}
