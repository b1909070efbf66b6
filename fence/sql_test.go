package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// onEachDatabase runs f with an empty database of each dialect that has the table.
func onEachDatabase(t *testing.T, f func(t *testing.T, d Dialect, db *sql.DB)) {
	open := map[Dialect]func(t *testing.T) (driver, source string){
		Postgres: func(t *testing.T) (string, string) { return "pgx", testdb.SharedPostgres(t).Database(t) },
		MySQL: func(t *testing.T) (string, string) {
			u, err := url.Parse(testdb.SharedMariaDB(t).Database(t))
			if err != nil {
				t.Fatal(err)
			}
			c := mysql.NewConfig()
			c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
			return "mysql", c.FormatDSN()
		},
		SQLite: func(t *testing.T) (string, string) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "app.db") +
				"?_pragma=busy_timeout(20000)&_pragma=journal_mode(wal)"
		},
	}
	for _, d := range []Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			driver, source := open[d](t)
			db, err := sql.Open(driver, source)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			for range 2 { // the second time it is there
				if err := d.Create(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			f(t, d, db)
		})
	}
}

// checkOnce checks a fence in a transaction of its own.
func checkOnce(ctx context.Context, d Dialect, db *sql.DB, resource string, fence uint64) error {
	_, leave, err := Database(db, d).Enter(ctx, resource, fence)
	if err == nil {
		leave()
	}
	return err
}

func TestCheckRefusesLowerFences(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d Dialect, db *sql.DB) {
		for _, step := range []struct {
			resource       string
			fence, highest uint64 // highest is 0 if the fence is accepted
		}{
			{"db", 5, 0},
			{"db", 5, 0}, // the same holder again
			{"db", 4, 5},
			{"db", 7, 0},
			{"db", 5, 7},
			{"db", 6, 7},
			{"db", 7, 0},
			{"DB", 1, 0}, // another resource, as are all names that differ by a byte
			{"db ", 1, 0},
			{"db/a", 1, 0},
			{"dß", 1, 0},
			{"dss", 2, 0},
			{"dß", 1, 0},
			{strings.Repeat("ä", MaxResource/2), math.MaxInt64, 0},
			{strings.Repeat("ä", MaxResource/2), math.MaxInt64 - 1, math.MaxInt64},
		} {
			err := checkOnce(t.Context(), d, db, step.resource, step.fence)
			var stale *StaleError
			switch {
			case step.highest == 0:
				if err != nil {
					t.Errorf("fence %d at %q: %v", step.fence, step.resource, err)
				}
			case !errors.Is(err, ErrStale) || !errors.As(err, &stale) || stale.Highest != step.highest ||
				stale.Fence != step.fence || stale.Resource != step.resource:
				t.Errorf("fence %d at %q: %#v; it must be stale, because of %d", step.fence, step.resource, err, step.highest)
			}
		}
	})
}

// A transaction that began before a later holder's commit has an older view of the data. It must not
// be judged by that view.
func TestCheckIgnoresAnOldSnapshot(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d Dialect, db *sql.DB) {
		if err := checkOnce(t.Context(), d, db, "db", 5); err != nil {
			t.Fatal(err)
		}
		late, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: map[Dialect]sql.IsolationLevel{
			Postgres: sql.LevelRepeatableRead, MySQL: sql.LevelRepeatableRead, SQLite: sql.LevelDefault}[d]})
		if err != nil {
			t.Fatal(err)
		}
		defer late.Rollback()
		var seen int
		if err := late.QueryRowContext(t.Context(), "SELECT fence FROM lock_fences").Scan(&seen); err != nil || seen != 5 {
			t.Fatalf("%d, %v", seen, err)
		}
		if err := checkOnce(t.Context(), d, db, "db", 6); err != nil {
			t.Fatal(err)
		}
		err = d.Check(t.Context(), late, "db", 5)
		if err == nil {
			t.Fatal("the late holder may write")
		}
		if d == MySQL && !errors.Is(err, ErrStale) { // the others refuse to write over what they have not seen
			t.Errorf("%v is not stale", err)
		}
	})
}

func TestRolledBackCheckLeavesNoTrace(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d Dialect, db *sql.DB) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(t.Context(), tx, "db", 9); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := checkOnce(t.Context(), d, db, "db", 5); err != nil {
			t.Error(err)
		}
	})
}

// Transactions under many fences run at once: in the order of their commits fences never fall. The
// counter shows that they ran one after the other.
func TestCommitsAreInOrderOfFences(t *testing.T) {
	const holders, writes = 4, 8
	onEachDatabase(t, func(t *testing.T, d Dialect, db *sql.DB) {
		for _, statement := range []string{
			"CREATE TABLE counter (n BIGINT NOT NULL)", "INSERT INTO counter VALUES (0)",
			"CREATE TABLE written (n BIGINT PRIMARY KEY, fence BIGINT NOT NULL)",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		write := func(fence uint64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := d.Check(t.Context(), tx, "db", fence); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
				return err
			}
			for _, statement := range []string{
				fmt.Sprintf("INSERT INTO written VALUES (%d, %d)", n, fence), fmt.Sprintf("UPDATE counter SET n = %d", n+1),
			} {
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					return err
				}
			}
			return tx.Commit()
		}
		var holding sync.WaitGroup
		for fence := uint64(1); fence <= holders; fence++ {
			holding.Go(func() {
				for range writes {
					if err := write(fence); errors.Is(err, ErrStale) {
						return
					} else if err != nil {
						t.Errorf("fence %d: %v", fence, err)
						return
					}
				}
			})
		}
		holding.Wait()
		rows, err := db.QueryContext(t.Context(), "SELECT n, fence FROM written ORDER BY n")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		last, count := 0, map[int]int{}
		for rows.Next() {
			var n, fence int
			if err := rows.Scan(&n, &fence); err != nil {
				t.Fatal(err)
			}
			if fence < last {
				t.Errorf("write %d is under fence %d, after one under %d", n, fence, last)
			}
			last, count[fence] = fence, count[fence]+1
		}
		if err := rows.Err(); err != nil || count[holders] != writes {
			t.Errorf("the last holder wrote %d times of %d; %v", count[holders], writes, err)
		}
	})
}

func TestCheckRefusesWrongInput(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, wrong := range []struct {
		d        Dialect
		resource string
		fence    uint64
		message  string
	}{
		{SQLite, "", 1, "empty"},
		{SQLite, strings.Repeat("a", MaxResource+1), 1, "at most 255"},
		{SQLite, "a\x00b", 1, "NUL"},
		{SQLite, "a\xff", 1, "UTF-8"},
		{SQLite, "a", 0, "begin at 1"},
		{SQLite, "a", math.MaxInt64 + 1, "above 9223372036854775807"},
		{0, "a", 1, "none of Postgres, MySQL and SQLite"},
	} {
		err := checkOnce(t.Context(), wrong.d, db, wrong.resource, wrong.fence)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), wrong.message) {
			t.Errorf("%s, %q, %d: %v; it should say %q", wrong.d, wrong.resource, wrong.fence, err, wrong.message)
		}
	}
	if err := Dialect(7).Create(t.Context(), db); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := checkOnce(t.Context(), SQLite, db, "a", 1); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("without a table: %v", err)
	}
}
