package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Querier is a pool of connections or one of them.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

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

// Apply applies the migrations that the database lacks. If it fails, or the process ends, another
// Apply goes on.
func (s Schema) Apply(ctx context.Context, pool *sql.DB, store Store) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := store.Lock(ctx, conn); err != nil {
		return err
	}
	err = s.bringUp(ctx, conn, store)
	return errors.Join(err, store.Unlock(ctx, conn, err == nil))
}

// bringUp applies the migrations under the lock.
func (s Schema) bringUp(ctx context.Context, conn *sql.Conn, store Store) error {
	version, err := store.Version(ctx, conn) // another process may have applied them meanwhile
	if err != nil {
		return err
	}
	for _, name := range s.names() {
		if number(name) <= version {
			continue
		}
		text, err := fs.ReadFile(s.Files, name)
		if err == nil {
			err = run(ctx, conn, string(text))
		}
		if err == nil {
			err = store.Record(ctx, conn, number(name))
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", name, err)
		}
	}
	version, err = store.Version(ctx, conn)
	if err == nil && version != s.Latest {
		err = fmt.Errorf("the tables have version %d after they were brought to version %d", version, s.Latest)
	}
	return err
}

// run executes the statements of a migration one by one, because not every driver takes several.
func run(ctx context.Context, conn *sql.Conn, text string) error {
	all, err := statements(text)
	if err != nil {
		return err
	}
	for _, statement := range all {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// statements splits a migration. A statement ends with a semicolon at the end of a line, which a
// comment may follow. No string of a migration has "--", or a semicolon at the end of a line.
func statements(text string) ([]string, error) {
	var all []string
	var open strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		code = strings.TrimSpace(code)
		if code == "" && open.Len() == 0 {
			continue
		}
		open.WriteString(line)
		if strings.HasSuffix(code, ";") {
			all = append(all, open.String())
			open.Reset()
		}
	}
	if strings.TrimSpace(open.String()) != "" {
		return nil, fmt.Errorf("the last statement has no semicolon: %q", open.String())
	}
	return all, nil
}
