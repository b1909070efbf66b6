package fence

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
)

// A Dialect is the SQL of a kind of database. Its table lock_fences has a row for each resource, with
// the highest fence that the resource has seen.
type Dialect int

// The dialects. MySQL is also that of MariaDB.
const (
	Postgres Dialect = iota + 1
	MySQL
	SQLite
)

var dialects = map[Dialect]struct{ name, table, raise, read string }{
	Postgres: {
		name: "Postgres",
		table: `CREATE TABLE IF NOT EXISTS lock_fences (
	resource VARCHAR(255) COLLATE "C" PRIMARY KEY,
	fence    BIGINT NOT NULL
)`,
		raise: `INSERT INTO lock_fences AS f (resource, fence) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET fence = GREATEST(f.fence, excluded.fence) RETURNING fence`,
	},
	// VARBINARY compares bytes: a collation would take "a", "A" and "a " for the same resource. The
	// engine is named because a table without transactions would keep no row locked.
	MySQL: {
		name: "MySQL",
		table: `CREATE TABLE IF NOT EXISTS lock_fences (
	resource VARBINARY(255) PRIMARY KEY,
	fence    BIGINT NOT NULL
) ENGINE = InnoDB`,
		raise: `INSERT INTO lock_fences (resource, fence) VALUES (?, ?)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))`,
		// FOR UPDATE reads the latest row. A plain SELECT reads the snapshot of the transaction,
		// which may be older than a later holder's commit.
		read: `SELECT fence FROM lock_fences WHERE resource = ? FOR UPDATE`,
	},
	SQLite: {
		name: "SQLite",
		table: `CREATE TABLE IF NOT EXISTS lock_fences (
	resource TEXT PRIMARY KEY,
	fence    INTEGER NOT NULL
) WITHOUT ROWID`,
		raise: `INSERT INTO lock_fences AS f (resource, fence) VALUES (?, ?)
ON CONFLICT (resource) DO UPDATE SET fence = MAX(f.fence, excluded.fence) RETURNING fence`,
	},
}

// String is the name of the dialect.
func (d Dialect) String() string {
	if of, ok := dialects[d]; ok {
		return of.name
	}
	return "dialect " + strconv.Itoa(int(d))
}

// Schema is the statement that makes the table if it is missing, for those who keep migrations of
// their own.
func (d Dialect) Schema() string { return dialects[d].table }

// Create makes the table if it is missing.
func (d Dialect) Create(ctx context.Context, db *sql.DB) error {
	if err := d.known(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, d.Schema()); err != nil {
		return fmt.Errorf("fence: make the table lock_fences: %w", err)
	}
	return nil
}

// Check records fence as the highest of resource, or returns a [*StaleError] if the resource has seen
// a higher one. It must be the first statement of the transaction: rows read before it may be
// older than a later holder's writes. After any error the caller rolls back.
//
// Check keeps the row of the resource locked until tx ends, so transactions that check one resource
// run one after the other. Of those that commit, none has a lower fence than one before it. A
// transaction that rolls back leaves no trace, its fence included. Statements that run outside
// such a transaction are not covered.
//
// A transaction that checks several resources checks them in one order, such as that of their names;
// otherwise two of them may wait for each other until the database ends one.
//
// Under REPEATABLE READ or a stricter level, Postgres refuses the second of two transactions that
// meet at a row (SQLSTATE 40001): run it again from its start.
func (d Dialect) Check(ctx context.Context, tx *sql.Tx, resource string, fence uint64) error {
	if err := d.known(); err != nil {
		return err
	}
	if err := validate(resource, fence); err != nil {
		return err
	}
	highest, err := d.raise(ctx, tx, resource, int64(fence))
	switch {
	case err != nil:
		return fmt.Errorf("fence: check %q: %w", resource, err)
	case highest < int64(fence):
		return fmt.Errorf("fence: check %q: the table kept %d for %d: does a trigger or a rule change lock_fences?", resource,
			highest, fence)
	case highest > int64(fence):
		return &StaleError{Resource: resource, Fence: fence, Highest: uint64(highest)}
	}
	return nil
}

// raise locks the row of the resource, raises its fence if it is lower, and returns it.
func (d Dialect) raise(ctx context.Context, tx *sql.Tx, resource string, fence int64) (highest int64, err error) {
	of := dialects[d]
	if of.read == "" {
		err = tx.QueryRowContext(ctx, of.raise, resource, fence).Scan(&highest)
		return highest, err
	}
	if _, err := tx.ExecContext(ctx, of.raise, resource, fence); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, of.read, resource).Scan(&highest)
	return highest, err
}

func (d Dialect) known() error {
	if _, ok := dialects[d]; !ok {
		return fmt.Errorf("%w: %s is none of Postgres, MySQL and SQLite", ErrInvalid, d)
	}
	return nil
}
