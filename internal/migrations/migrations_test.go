package migrations

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite"
)

// sqlite keeps the version in the header of a file. Reading it fails with the error of fails.
type sqlite struct {
	fails func() error
}

func (sqlite) Lock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return err
}

func (sqlite) Unlock(ctx context.Context, conn *sql.Conn, done bool) error {
	statement := "ROLLBACK"
	if done {
		statement = "COMMIT"
	}
	_, err := conn.ExecContext(ctx, statement)
	return err
}

func (s sqlite) Version(ctx context.Context, q Querier) (version int, err error) {
	if s.fails != nil {
		if err := s.fails(); err != nil {
			return 0, err
		}
	}
	err = q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

func (sqlite) Record(ctx context.Context, q Querier, version int) error {
	_, err := q.ExecContext(ctx, "PRAGMA user_version = "+string(rune('0'+version)))
	return err
}

func schemaOf(texts ...string) Schema {
	files := fstest.MapFS{}
	for i, text := range texts {
		files["0000"+string(rune('1'+i))+"_x.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	return New(files, ".")
}

func open(t *testing.T) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func TestEachMigrationIsAppliedOnce(t *testing.T) {
	pool := open(t)
	first := schemaOf("CREATE TABLE {a} (n INT);").Filled(func(text string) string {
		return strings.NewReplacer("{", "", "}", "").Replace(text)
	})
	for range 2 {
		if err := first.Apply(t.Context(), pool, sqlite{}); err != nil {
			t.Fatal(err)
		}
	}
	both := schemaOf("CREATE TABLE a (n INT);", "CREATE TABLE b (n INT);")
	if err := both.Apply(t.Context(), pool, sqlite{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec("INSERT INTO b SELECT * FROM a"); err != nil {
		t.Error(err)
	}
	text := both.Script(func(version int) string { return "-- " + string(rune('0'+version)) + "\n" })
	if text != "\nCREATE TABLE a (n INT);\n-- 1\n\nCREATE TABLE b (n INT);\n-- 2\n" {
		t.Errorf("the script is %q", text)
	}
}

func TestFailedMigrationIsUndone(t *testing.T) {
	pool := open(t)
	bad := schemaOf("CREATE TABLE a (n INT);", "CREATE TABLE a (n INT);")
	if err := bad.Apply(t.Context(), pool, sqlite{}); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("the second migration fails with %v", err)
	}
	errDisk := errors.New("the disk failed")
	for n := range 10 {
		reads := 0
		store := sqlite{func() error {
			if reads++; reads == n+1 {
				return errDisk
			}
			return nil
		}}
		err := schemaOf("CREATE TABLE a (n INT);").Apply(t.Context(), pool, store)
		if err == nil {
			if n == 0 {
				t.Error("no version was read")
			}
			return
		}
		if !errors.Is(err, errDisk) {
			t.Errorf("when read %d of the version fails the error is %v", n+1, err)
		}
		if _, err := pool.Exec("SELECT * FROM a"); err == nil {
			return // the last read is after the commit
		}
	}
}

// A statement ends at the end of a line, and neither comments nor their semicolons are statements.
func TestStatementsEndWithLines(t *testing.T) {
	got, err := statements("-- SELECT 1;\n\nCREATE TABLE a ( -- one; two;\n  n INT, -- three;\n\n-- four;\n" +
		"  m TEXT DEFAULT ';x'\n); -- done\n-- last;\nDROP TABLE b;")
	if err != nil || len(got) != 2 || !strings.HasPrefix(got[0], "CREATE TABLE a") ||
		!strings.Contains(got[0], "m TEXT") || got[1] != "DROP TABLE b;" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := statements("DROP TABLE a;\nDROP TABLE b"); err == nil || !strings.Contains(err.Error(), "DROP TABLE b") {
		t.Errorf("a statement without its end: %v", err)
	}
}
