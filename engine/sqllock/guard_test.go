package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// save and what backup does are in the page, too.

var errStale = errors.New("somebody else has had the lock since")

// execer is *sql.DB, *sql.Conn or *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// save keeps the configuration of a router, if nobody has had the lock since fence.
func save(ctx context.Context, db execer, router, config string, fence uint64) error {
	const guarded = `UPDATE backups SET config = $1, fence = $2 WHERE router = $3 AND fence <= $4`
	done, err := db.ExecContext(ctx, guarded, config, fence, router, fence)
	if err != nil {
		return err
	}
	if rows, err := done.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(errStale, err)
	}
	return nil
}

// backup saves the configuration of router1, which ask reads, under its lock.
func backup(ctx context.Context, client *lockkeeper.Client, db execer,
	ask func(ctx context.Context, router string) (string, error)) error {
	hold, err := client.Lock(ctx, "router1/config")
	if err != nil {
		return err
	}
	defer hold.Close()
	config, err := ask(hold.Context(), "router1")
	if err != nil {
		return err
	}
	return save(hold.Context(), db, "router1", config, hold.Fence())
}

// rewritten is a pool that is given texts with $1 and so on.
type rewritten struct{ database }

func (r rewritten) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return r.pool.ExecContext(ctx, r.asWritten(query), args...)
}

// The code in the page is that of the tests.
func TestPageCodeIsTested(t *testing.T) {
	unindented := func(text string) string {
		return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
	}
	code := unindented(string(readFile(t, "guard_test.go")) + string(readFile(t, "example_test.go")))
	blocks := pageBlocks(t, "go")
	for _, block := range blocks {
		if !strings.Contains(code, unindented(block)) {
			t.Errorf("%s has code that is neither in guard_test.go nor in example_test.go:\n%s", page, block)
		}
	}
	if len(blocks) < 3 {
		t.Errorf("%s has %d pieces of code", page, len(blocks))
	}
	if guard := strings.TrimSuffix(pageBlock(t, "sql", "UPDATE backups"), ";\n"); !strings.Contains(code, "`"+guard+"`") {
		t.Errorf("%s tells another guard:\n%s", page, guard)
	}
}

// A holder that was stopped for longer than its lease writes nothing: the guard of the page refuses
// it, although it does not know that another session has had the lock.
func TestGuardRefusesLateHolder(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := openEngine(t, url)
		db := rewritten{e.db}
		db.mustExec(t, pageBlock(t, "sql", "CREATE TABLE backups"),
			`INSERT INTO backups (router, config) VALUES ('router1', '')`)
		client := lockkeeper.New(openEngine(t, url))
		defer client.Close()
		if err := backup(t.Context(), client, db, func(context.Context, string) (string, error) {
			return "it", nil
		}); err != nil {
			t.Error(err)
		}
		want := exclusive(1, lockkeeper.Forever, "router1/config")
		late, next := join(t, e, "late", deadTTL), join(t, e, "next", time.Minute)
		old := late.claim(want, lockkeeper.Held)
		if err := save(t.Context(), db, "router1", "first", old.Fence); err != nil {
			t.Errorf("while it holds: %v", err)
		}
		if err := save(t.Context(), db, "router1", "second", old.Fence); err != nil {
			t.Errorf("while it holds, again: %v", err)
		}
		next.claim(want, lockkeeper.Waiting)
		now := next.await(1, lockkeeper.Held) // nobody has renewed the other one
		if err := save(t.Context(), db, "router1", "next", now.Fence); err != nil {
			t.Errorf("the next one: %v", err)
		}
		if err := save(t.Context(), db, "router1", "late", old.Fence); !errors.Is(err, errStale) {
			t.Errorf("the one that is too late: %v", err)
		}
		var config string
		if err := e.db.pool.QueryRow("SELECT config FROM backups").Scan(&config); err != nil || config != "next" {
			t.Errorf("what is saved is %q, %v", config, err)
		}
	})
}

// The guard for a whole transaction refuses a late holder, and makes the current one wait until the
// late one's transaction has ended.
func TestGuardOfATransaction(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := openEngine(t, url)
		db := rewritten{e.db}
		db.mustExec(t, pageBlock(t, "sql", "CREATE TABLE fences"), `INSERT INTO fences (path) VALUES ('router1')`)
		guard := e.db.asWritten(strings.TrimSuffix(pageBlock(t, "sql", "UPDATE fences"), ";\n"))
		pass := func(by execer, fence int64) bool {
			done, err := by.ExecContext(t.Context(), guard, fence, "router1", fence)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := done.RowsAffected()
			if err != nil {
				t.Fatal(err)
			}
			return rows == 1
		}
		begin := func() *sql.Tx {
			tx, err := e.db.pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback() })
			return tx
		}
		old := begin()
		if !pass(old, 7) {
			t.Fatal("the first was not let in")
		}
		passed := make(chan bool, 1)
		next := begin()
		go func() { passed <- pass(next, 8) }()
		select {
		case <-passed:
			t.Error("the next one went on beside the first")
		case <-time.After(100 * time.Millisecond):
		}
		if err := old.Commit(); err != nil {
			t.Fatal(err)
		}
		if !<-passed {
			t.Error("the next one was not let in")
		}
		if err := next.Commit(); err != nil {
			t.Fatal(err)
		}
		if pass(begin(), 7) {
			t.Error("the first was let in after the next one")
		}
	})
}
