package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/migrations"
)

//go:embed schema
var embedded embed.FS

var schemas = sync.OnceValue(func() map[flavour]migrations.Schema {
	return map[flavour]migrations.Schema{
		postgres: migrations.New(embedded, "schema/postgres"),
		mysql:    migrations.New(embedded, "schema/mysql"),
	}
})

// unlockBound bounds the end of a migration that was interrupted.
const unlockBound = 10 * time.Second

// migrationPatience is how long a migration waits for that of another process, in seconds.
const migrationPatience = 30

// Migrate updates the tables in the database that the URL names, and creates them if there are
// none, even if the URL says migrate=off. See [Open] for URLs and errors. Any number of processes
// may call it at once: one does the work, and the others wait. If ctx ends it, the next call goes
// on.
func Migrate(ctx context.Context, url string) error {
	s, err := parse(url)
	if err != nil {
		return err
	}
	db := s.open()
	defer db.pool.Close()
	return db.ready(ctx, true)
}

// ready makes sure that the tables exist and are up to date, mostly with one short query.
func (db database) ready(ctx context.Context, migrates bool) error {
	latest := schemas()[db.flavour].Latest
	version, err := db.version(ctx, db.pool)
	missing := errors.Is(err, lockkeeper.ErrNoTables)
	switch {
	case err != nil && !missing:
		return db.refusal(err)
	case version == latest:
		return nil
	case !migrates && missing:
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: lockkeeper.ErrNoTables,
			Detail: fmt.Sprintf("somebody who may make tables %s must run \"lk migrate\"", db.place())}
	case !migrates:
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Detail: fmt.Sprintf("the tables %s have version %d, and this program needs version %d: somebody who may change "+
				"them must run \"lk migrate\"", db.place(), version, latest)}
	}
	return db.refusal(db.migrate(ctx))
}

// migrate applies the migrations that the database has not had.
//
// In Postgres all of them share one transaction. In MariaDB and MySQL each statement commits by
// itself; so each of them can be repeated, and the number of a migration is written after its last
// statement.
func (db database) migrate(ctx context.Context) error {
	return schemas()[db.flavour].Filled(db.sql).Apply(ctx, db.pool, versionStore{db})
}

// versionStore keeps the numbers of the migrations that were applied in a table. It implements
// migrations.Store.
type versionStore struct{ db database }

// Lock excludes other processes, and creates the table of versions.
func (s versionStore) Lock(ctx context.Context, conn *sql.Conn) error {
	lock := s.lockMySQL
	if s.db.flavour == postgres {
		lock = s.lockPostgres
	}
	err := lock(ctx, conn)
	if err == nil {
		err = s.prepare(ctx, conn)
	}
	if err != nil {
		return errors.Join(err, s.Unlock(ctx, conn, false))
	}
	return nil
}

// lockPostgres begins the transaction, with an advisory lock that ends with it: PgBouncer would
// lose one of the connection.
func (s versionStore) lockPostgres(ctx context.Context, conn *sql.Conn) error {
	number := fnv.New64a()
	fmt.Fprintf(number, "lockkeeper migrates %s", s.db.prefix)
	for _, statement := range []string{
		"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
		fmt.Sprintf("SET LOCAL lock_timeout = '%ds'", migrationPatience),
		"SET LOCAL client_min_messages = warning",
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(number.Sum64())),
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s versionStore) lockMySQL(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	row := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT get_lock(%s, %d)", s.lockName(), migrationPatience))
	if err := row.Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return s.db.busy()
	}
	return nil
}

// lockName is the expression for the lock's name in MariaDB and MySQL, where it counts for the
// whole server and has 64 characters at most.
func (s versionStore) lockName() string {
	return fmt.Sprintf("concat('lockkeeper migrates ', left(sha1(concat(database(), '/%s')), 16))", s.db.prefix)
}

// prepare makes sure that every table with one of our names is ours, and creates the table of
// versions, which marks them so.
func (s versionStore) prepare(ctx context.Context, conn *sql.Conn) error {
	if err := s.db.checkServer(ctx, conn); err != nil {
		return err
	}
	found, err := s.db.contents(ctx, conn)
	if err != nil || found.ours {
		return err
	}
	if found.others != "" {
		return s.db.occupied(found.others)
	}
	if s.db.flavour == postgres && !found.schema {
		if _, err := conn.ExecContext(ctx, "CREATE SCHEMA "+quote(s.db.prefix, `"`)); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, s.db.sql(versionsTables[s.db.flavour]))
	return err
}

// Unlock ends what Lock began.
func (s versionStore) Unlock(ctx context.Context, conn *sql.Conn, done bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockBound)
	defer cancel()
	statement := "DO release_lock(" + s.lockName() + ")"
	switch {
	case s.db.flavour == postgres && done:
		statement = "COMMIT"
	case s.db.flavour == postgres:
		statement = "ROLLBACK"
	}
	_, err := conn.ExecContext(ctx, statement)
	if !done {
		return nil // the first error counts; the server rolls back and unlocks when the connection ends
	}
	return err
}

// Version reads the table of versions.
func (s versionStore) Version(ctx context.Context, q migrations.Querier) (int, error) {
	version, err := s.db.version(ctx, q)
	if errors.Is(err, lockkeeper.ErrNoTables) {
		err = nil
	}
	return version, err
}

// Record writes to the table of versions.
func (s versionStore) Record(ctx context.Context, q migrations.Querier, version int) error {
	_, err := q.ExecContext(ctx, s.db.sql(recordVersion(version)))
	return err
}

func recordVersion(version int) string {
	return fmt.Sprintf("INSERT INTO {migrations} (version) VALUES (%d)", version)
}

// versionsTables has a row for each migration that was applied.
var versionsTables = map[flavour]string{
	postgres: `CREATE TABLE {migrations} (
    version    bigint PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)`,
	mysql: `CREATE TABLE IF NOT EXISTS {migrations} (
    version    BIGINT PRIMARY KEY,
    applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE=InnoDB`,
}
