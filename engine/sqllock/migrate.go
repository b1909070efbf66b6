package sqllock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"

	"github.com/lockkeeper/lockkeeper"
)

//go:embed schema
var migrations embed.FS

// schema is a folder of migrations, with names in braces, and the number of the last of
// them: the version of tables that are up to date.
type schema struct {
	files  fs.FS
	latest int
}

var schemas = map[flavour]schema{postgres: newSchema(postgres), mysql: newSchema(mysql)}

// newSchema looks for the latest migration: their names begin with their numbers.
func newSchema(f flavour) schema {
	files, err := fs.Sub(migrations, path.Join("schema", f.String()))
	if err != nil {
		panic(err) // it is embedded above
	}
	s := schema{files: files}
	for _, name := range s.names() {
		number, _, _ := strings.Cut(name, "_")
		n, _ := strconv.Atoi(number) // goose refuses what is no number
		s.latest = max(s.latest, n)
	}
	return s
}

// names are the names of the migrations, in their order.
func (s schema) names() []string {
	names, _ := fs.Glob(s.files, "*.sql") // the pattern is a good one
	return names
}

// unlockBound is for the end of a migration that was cut short.
const unlockBound = 10 * time.Second

// migrationPatience is for how long a migration waits for that of another process, in seconds.
const migrationPatience = 30

// Migrate brings the tables in the database that the URL names up to date, and makes
// them if they are not there, also where the URL says migrate=off. See [Open] for URLs and
// errors. Any number of processes may do so at once: one does it, and the others wait.
// ctx bounds it; what was cut short is repeated by the next.
func Migrate(ctx context.Context, url string) error {
	s, err := parse(url)
	if err != nil {
		return err
	}
	db := s.open()
	defer db.pool.Close()
	return db.ready(ctx, true)
}

// ready makes sure that the tables are there and up to date, which mostly costs one short
// query.
func (db database) ready(ctx context.Context, migrates bool) error {
	latest := schemas[db.flavour].latest
	version, err := db.version(ctx, db.pool)
	missing := errors.Is(err, ErrNoTables)
	switch {
	case err != nil && !missing:
		return db.refusal(err)
	case version == latest:
		return nil
	case !migrates && missing:
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ErrNoTables,
			Detail: fmt.Sprintf("somebody who may make tables %s must run \"lk migrate\"", db.place())}
	case !migrates:
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Detail: fmt.Sprintf("the tables %s have version %d, and this program needs version %d: somebody who may change "+
				"them must run \"lk migrate\"", db.place(), version, latest)}
	}
	return db.refusal(db.migrate(ctx, schemas[db.flavour]))
}

// migrate applies the migrations that the database has not had.
//
// Whoever does that keeps the others out. In Postgres all is one transaction. In MariaDB and
// MySQL each statement is one; so every one of them can be repeated, and the number
// of a migration is written after the last.
func (db database) migrate(ctx context.Context, s schema) error {
	provider, err := goose.NewProvider(goose.DialectCustom, db.pool, filled{s.files, db.naming},
		goose.WithStore(versionStore{db}),
		goose.WithSessionLocker(&migrationLock{db, s}),
		goose.WithIsolateDDL(true), // no transactions but ours
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}
	version, err := db.version(ctx, db.pool)
	if err == nil && version != s.latest {
		err = fmt.Errorf("the tables %s have version %d after they were brought to version %d", db.place(), version, s.latest)
	}
	return err
}

// migrationLock keeps other processes from migrating. It is goose's SessionLocker, which is
// called for one connection, that goose uses for all of it.
type migrationLock struct {
	db     database
	schema schema
}

// SessionLock implements goose's SessionLocker.
func (l *migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	lock := l.lockMySQL
	if l.db.flavour == postgres {
		lock = l.lockPostgres
	}
	err := lock(ctx, conn)
	if err == nil {
		err = l.prepare(ctx, conn)
	}
	if err != nil {
		return errors.Join(err, l.unlock(ctx, conn, false))
	}
	return nil
}

// lockPostgres begins the transaction, with a lock that ends with it: one that were the
// connection's would be lost behind PgBouncer.
func (l *migrationLock) lockPostgres(ctx context.Context, conn *sql.Conn) error {
	number := fnv.New64a()
	fmt.Fprintf(number, "lockkeeper migrates %s", l.db.prefix)
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

func (l *migrationLock) lockMySQL(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	row := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT get_lock(%s, %d)", l.name(), migrationPatience))
	if err := row.Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return l.db.busy()
	}
	return nil
}

// name is the expression for the lock's name in MariaDB and MySQL, where it counts for the
// whole server and has 64 characters at most.
func (l *migrationLock) name() string {
	return fmt.Sprintf("concat('lockkeeper migrates ', left(sha1(concat(database(), '/%s')), 16))", l.db.prefix)
}

// prepare looks what is there, now that nobody else changes it, and makes the table that tells
// the version: after it every table with one of our names is ours.
func (l *migrationLock) prepare(ctx context.Context, conn *sql.Conn) error {
	if err := l.db.checkServer(ctx, conn); err != nil {
		return err
	}
	found, err := l.db.contents(ctx, conn)
	if err != nil || found.ours {
		return err
	}
	if found.others != "" {
		return l.db.occupied(found.others)
	}
	if l.db.flavour == postgres && !found.schema {
		if _, err := conn.ExecContext(ctx, "CREATE SCHEMA "+quote(l.db.prefix, `"`)); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, l.db.sql(versionsTables[l.db.flavour]))
	return err
}

// SessionUnlock implements goose's SessionLocker.
func (l *migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	version, err := l.db.version(ctx, conn)
	return l.unlock(ctx, conn, err == nil && version == l.schema.latest) // why not, goose knows
}

// unlock ends what SessionLock began; done says that all has been applied.
func (l *migrationLock) unlock(ctx context.Context, conn *sql.Conn, done bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockBound)
	defer cancel()
	statement := "DO release_lock(" + l.name() + ")"
	switch {
	case l.db.flavour == postgres && done:
		statement = "COMMIT"
	case l.db.flavour == postgres:
		statement = "ROLLBACK"
	}
	_, err := conn.ExecContext(ctx, statement)
	if !done {
		return nil // the first error counts; what is not rolled back or released is so when the connection ends
	}
	return err
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

// versionStore keeps the numbers of the migrations. It is goose's Store.
type versionStore struct{ db database }

// Tablename implements goose's Store.
func (s versionStore) Tablename() string { return s.db.name("migrations") }

// TableExists says that there is nothing to create: migrationLock does it, since
// goose would do it before the lock.
func (versionStore) TableExists(context.Context, goosedb.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements goose's Store.
func (versionStore) CreateVersionTable(context.Context, goosedb.DBTxConn) error { return nil }

// Insert implements goose's Store.
func (s versionStore) Insert(ctx context.Context, q goosedb.DBTxConn, r goosedb.InsertRequest) error {
	_, err := q.ExecContext(ctx, s.db.sql(fmt.Sprintf("INSERT INTO {migrations} (version) VALUES (%d)", r.Version)))
	return err
}

// Delete implements goose's Store. There are no migrations back.
func (versionStore) Delete(context.Context, goosedb.DBTxConn, int64) error {
	return goosedb.ErrNotImplemented
}

// GetMigration implements goose's Store.
func (s versionStore) GetMigration(ctx context.Context, q goosedb.DBTxConn, version int64) (*goosedb.GetMigrationResult,
	error) {
	latest, err := s.GetLatestVersion(ctx, q)
	if err == nil && version > latest {
		err = goosedb.ErrVersionNotFound
	}
	if err != nil {
		return nil, err
	}
	return &goosedb.GetMigrationResult{IsApplied: true}, nil
}

// GetLatestVersion implements goose's Store.
func (s versionStore) GetLatestVersion(ctx context.Context, q goosedb.DBTxConn) (int64, error) {
	version, err := s.db.version(ctx, q)
	if errors.Is(err, ErrNoTables) {
		err = nil // goose also asks before the lock
	}
	return int64(version), err
}

// ListMigrations implements goose's Store.
func (s versionStore) ListMigrations(ctx context.Context, q goosedb.DBTxConn) ([]*goosedb.ListMigrationsResult, error) {
	latest, err := s.GetLatestVersion(ctx, q)
	if err != nil {
		return nil, err
	}
	var applied []*goosedb.ListMigrationsResult
	for v := latest; v >= 0; v-- {
		applied = append(applied, &goosedb.ListMigrationsResult{Version: v, IsApplied: true})
	}
	return applied, nil
}
