package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"
)

// Querier is a pool of connections or one of them.
type Querier = goosedb.DBTxConn

// Store is the part of a migration that depends on the engine: the lock and the version.
type Store interface {
	// Lock excludes other processes from migrating, on the one connection that all migrations
	// use. If it fails it leaves nothing behind.
	Lock(ctx context.Context, conn *sql.Conn) error
	// Unlock releases the lock. If done is false, some migration was not applied, and Unlock rolls
	// back the transaction, if there is one.
	Unlock(ctx context.Context, conn *sql.Conn, done bool) error
	// Version is the number of the latest migration that was applied; 0 if there are no tables.
	Version(ctx context.Context, q Querier) (int, error)
	// Record stores a version.
	Record(ctx context.Context, q Querier, version int) error
}

// Apply applies the migrations that the database lacks.
func (s Schema) Apply(ctx context.Context, pool *sql.DB, store Store) error {
	lock := &locker{store: store, latest: s.Latest}
	provider, err := goose.NewProvider(goose.DialectCustom, pool, s.Files,
		goose.WithStore(versionStore{store}),
		goose.WithSessionLocker(lock),
		goose.WithIsolateDDL(true), // no transactions but the store's
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}
	if lock.unchecked != nil {
		return lock.unchecked
	}
	version, err := store.Version(ctx, pool)
	if err == nil && version != s.Latest {
		err = fmt.Errorf("the tables have version %d after they were brought to version %d", version, s.Latest)
	}
	return err
}

// locker is a Store as goose's SessionLocker.
type locker struct {
	store     Store
	latest    int
	unchecked error // why the version could not be read after the migrations: they were undone
}

// SessionLock implements goose's SessionLocker.
func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return l.store.Lock(ctx, conn)
}

// SessionUnlock implements goose's SessionLocker.
func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	version, err := l.store.Version(ctx, conn)
	l.unchecked = err
	return l.store.Unlock(ctx, conn, err == nil && version == l.latest)
}

// versionStore is a Store as goose's Store. goose also asks it before the lock.
type versionStore struct{ store Store }

// Tablename implements goose's Store.
func (versionStore) Tablename() string { return "migrations" }

// TableExists implements goose's Store. It says that there is nothing to create, because goose
// would create it before the lock.
func (versionStore) TableExists(context.Context, goosedb.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements goose's Store.
func (versionStore) CreateVersionTable(context.Context, goosedb.DBTxConn) error { return nil }

// Insert implements goose's Store.
func (s versionStore) Insert(ctx context.Context, q goosedb.DBTxConn, r goosedb.InsertRequest) error {
	return s.store.Record(ctx, q, int(r.Version))
}

// Delete implements goose's Store. No migration can be undone.
func (versionStore) Delete(context.Context, goosedb.DBTxConn, int64) error {
	return goosedb.ErrNotImplemented
}

// GetMigration implements goose's Store.
func (s versionStore) GetMigration(ctx context.Context, q goosedb.DBTxConn,
	version int64) (*goosedb.GetMigrationResult, error) {
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
	version, err := s.store.Version(ctx, q)
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
