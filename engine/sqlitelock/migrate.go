package sqlitelock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper/internal/migrations"
)

//go:embed schema/*.sql
var embedded embed.FS

// ownSchema returns the schema that this program knows.
var ownSchema = sync.OnceValue(func() migrations.Schema { return migrations.New(embedded, "schema") })

// migrate applies the migrations that the file lacks. It is not called for a file that is up to
// date.
//
// All migrations share one transaction on our only connection, which migrate returns to the pool
// meanwhile. So a process that is killed leaves the file as it was, and of several processes one
// does the work while the others wait for it.
func (db *database) migrate(ctx context.Context) (err error) {
	db.conn.Close()
	defer func() {
		conn, again := db.pool.Conn(ctx)
		db.conn = conn
		err = errors.Join(err, again)
	}()
	return db.schema.Apply(ctx, db.pool, versionStore{db})
}

// versionStore keeps the number of the latest migration in the header of the file, where SQLite has
// a place for it, and in the row of meta, which every transaction reads. It implements
// migrations.Store.
type versionStore struct{ db *database }

// Lock begins the transaction around all migrations.
func (s versionStore) Lock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	// Another program may have been faster, and made something else of the file.
	if _, err := s.db.kind(conn); err != nil {
		return errors.Join(err, rollBack(ctx, conn))
	}
	return nil
}

// Unlock ends the transaction.
func (s versionStore) Unlock(ctx context.Context, conn *sql.Conn, done bool) error {
	if !done {
		return rollBack(ctx, conn)
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		_ = rollBack(ctx, conn) // some errors have rolled back already
		return err
	}
	return nil
}

func rollBack(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err
}

// Version reads the header.
func (versionStore) Version(ctx context.Context, q migrations.Querier) (version int, err error) {
	err = q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

// Record writes the header and the row of meta.
func (versionStore) Record(ctx context.Context, q migrations.Querier, version int) error {
	if _, err := q.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, "UPDATE meta SET layout = ?", version)
	return err
}
