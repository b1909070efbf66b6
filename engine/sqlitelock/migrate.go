package sqlitelock

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"
)

//go:embed schema/*.sql
var migrations embed.FS

// schema is a folder of migrations, and the number of the last of them: the
// version of a file that is up to date.
type schema struct {
	files  fs.FS
	latest int
}

// ownSchema is what this program knows.
var ownSchema = func() schema {
	files, err := fs.Sub(migrations, "schema")
	if err != nil {
		panic(err) // it is embedded above
	}
	return newSchema(files)
}()

// newSchema looks for the latest migration in a folder: their names begin with
// their numbers.
func newSchema(files fs.FS) schema {
	s := schema{files: files}
	names, _ := fs.Glob(files, "*.sql") // the pattern is a good one
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, _ := strconv.Atoi(number) // goose refuses what is no number
		s.latest = max(s.latest, n)
	}
	return s
}

// migrate applies the migrations that the file has not had. It is not called for
// a file that is up to date.
//
// Everything happens in one transaction, on our only connection, which goose
// takes from the pool meanwhile. So whoever is killed leaves the file as it was,
// and of several processes one does the work while the others wait for it.
func (db *database) migrate(ctx context.Context) (err error) {
	db.conn.Close()
	defer func() {
		conn, again := db.pool.Conn(ctx)
		db.conn = conn
		err = errors.Join(err, again)
	}()
	provider, err := goose.NewProvider(goose.DialectCustom, db.pool, db.schema.files,
		goose.WithStore(versionStore{}),
		goose.WithSessionLocker(&wholeLocker{db}),
		goose.WithIsolateDDL(true), // no transactions but ours
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// wholeLocker begins the transaction around all migrations, and ends it.
type wholeLocker struct{ db *database }

// SessionLock implements goose's SessionLocker.
func (l *wholeLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	// Another program may have been faster, and made something else of the file.
	if _, err := l.db.kind(conn); err != nil {
		return errors.Join(err, rollBack(ctx, conn))
	}
	return nil
}

// SessionUnlock implements goose's SessionLocker. It commits if all migrations have
// been applied, which the file itself tells; else there was an error.
func (l *wholeLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	version, err := versionStore{}.GetLatestVersion(ctx, conn)
	if err != nil || version != int64(l.db.schema.latest) {
		return errors.Join(err, rollBack(ctx, conn))
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		// Some errors have rolled back already.
		_ = rollBack(ctx, conn)
		return err
	}
	return nil
}

func rollBack(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err
}

// versionStore keeps the number of the last migration where SQLite has a place
// for it, in the header of the file, and in the row of meta, where every
// transaction comes by.
type versionStore struct{}

// Tablename implements goose's Store.
func (versionStore) Tablename() string { return "meta" }

// TableExists says that there is nothing to create.
func (versionStore) TableExists(context.Context, goosedb.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements goose's Store.
func (versionStore) CreateVersionTable(context.Context, goosedb.DBTxConn) error { return nil }

// Insert implements goose's Store.
func (versionStore) Insert(ctx context.Context, db goosedb.DBTxConn, r goosedb.InsertRequest) error {
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", r.Version)); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "UPDATE meta SET layout = ?", r.Version)
	return err
}

// Delete implements goose's Store. There are no migrations back.
func (versionStore) Delete(context.Context, goosedb.DBTxConn, int64) error {
	return goosedb.ErrNotImplemented
}

// GetMigration implements goose's Store.
func (s versionStore) GetMigration(ctx context.Context, db goosedb.DBTxConn,
	version int64) (*goosedb.GetMigrationResult, error) {
	latest, err := s.GetLatestVersion(ctx, db)
	if err == nil && version > latest {
		err = goosedb.ErrVersionNotFound
	}
	if err != nil {
		return nil, err
	}
	return &goosedb.GetMigrationResult{IsApplied: true}, nil
}

// GetLatestVersion implements goose's Store.
func (versionStore) GetLatestVersion(ctx context.Context, db goosedb.DBTxConn) (version int64, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

// ListMigrations implements goose's Store.
func (s versionStore) ListMigrations(ctx context.Context, db goosedb.DBTxConn) ([]*goosedb.ListMigrationsResult,
	error) {
	latest, err := s.GetLatestVersion(ctx, db)
	if err != nil {
		return nil, err
	}
	var applied []*goosedb.ListMigrationsResult
	for v := latest; v >= 0; v-- {
		applied = append(applied, &goosedb.ListMigrationsResult{Version: v, IsApplied: true})
	}
	return applied, nil
}
