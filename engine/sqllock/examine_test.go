package sqllock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// examined are the findings of an engine, by their checks.
func examined(t *testing.T, e *Engine) map[string]lockkeeper.Finding {
	t.Helper()
	found := make(map[string]lockkeeper.Finding)
	for _, f := range e.Examine(t.Context()) {
		found[f.Check] = f
		if (f.Grade == lockkeeper.Fine) != (f.Remedy == "") {
			t.Errorf("%s is %s, with the remedy %q", f.Check, f.Grade, f.Remedy)
		}
	}
	if len(found) != 12 {
		t.Errorf("%d findings, want 12: %v", len(found), found)
	}
	return found
}

func wantFinding(t *testing.T, f lockkeeper.Finding, grade lockkeeper.Grade, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(f.Detail+" "+f.Remedy, text) {
			grade = 99
		}
	}
	if f.Grade != grade {
		t.Errorf("%s: %s: %s (%s)\nwant %q", f.Check, f.Grade, f.Detail, f.Remedy, texts)
	}
}

// begun opens an engine for one test.
func begun(t *testing.T, url string) *Engine {
	t.Helper()
	e, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// holding attaches a session that holds a path.
func holding(t *testing.T, e *Engine, session string, path lockkeeper.Path) lockkeeper.Key {
	t.Helper()
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: session, TTL: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := lockkeeper.Want{
		ID:      1,
		Wait:    lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
	}
	if _, err := e.Claim(t.Context(), lease.Key, w); err != nil {
		t.Fatal(err)
	}
	return lease.Key
}

func TestExamine(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		holding(t, e, "a", "db")
		holding(t, e, "b", "db")
		found := examined(t, e)
		for _, f := range found {
			if f.Check != "durability" { // the servers of tests don't wait for the disk
				wantFinding(t, f, lockkeeper.Fine)
			}
		}
		wantFinding(t, found["sessions"], lockkeeper.Fine, "2 live; 1 held, 1 waiting")
		wantFinding(t, found["database"], lockkeeper.Fine, "of version "+fmt.Sprint(schemas()[e.db.flavour].Latest),
			"a question takes")
		wantFinding(t, found["durability"], lockkeeper.Doubtful)
	})
}

// For a session that can't be ended because its row is locked, the examination names the
// transaction that keeps the lock.
func TestExamineExpiryBlocked(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		k := holding(t, e, "a", "db")
		holding(t, e, "b", "other")
		admin := opened(t, url)
		if over, err := e.Overdue(t.Context()); over != 0 || err != nil {
			t.Errorf("overdue by %s, %v", over, err)
		}
		admin.mustExec(t, admin.sql(fmt.Sprintf("UPDATE {sessions} SET deadline_ns = deadline_ns - %d, promise_ns = 0 "+
			"WHERE id = 'a'", 2*time.Hour)))
		tx, err := admin.pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec(admin.sql("SELECT id FROM {sessions} WHERE id = 'a' FOR UPDATE")); err != nil {
			t.Fatal(err)
		}
		whose := "it may be connection" // others of this server may have begun in the same second
		if admin.flavour == postgres {
			if err := tx.QueryRow("SELECT pg_backend_pid()").Scan(&whose); err != nil {
				t.Fatal(err)
			}
		}
		e.cleanUp() // which can't
		found := examined(t, e)["expiry"]
		// MariaDB shows transactions from a copy, which it renews only after nobody read it for 100 ms.
		for end := time.Now().Add(time.Minute); !strings.Contains(found.Detail, whose) && time.Now().Before(end); {
			<-time.After(200 * time.Millisecond)
			found = examined(t, e)["expiry"]
		}
		wantFinding(t, found, lockkeeper.Broken, "it can't run", " 1h0m", "ago: a", whose)
		if over, err := e.Overdue(t.Context()); over < time.Hour || over > time.Hour+time.Minute || err != nil {
			t.Errorf("overdue by %s, %v; want an hour", over, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		e.cleanUp()
		// It is ended by a job behind which this one comes.
		if err := e.End(t.Context(), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err == nil {
			t.Error("the session was not ended")
		}
		wantFinding(t, examined(t, e)["expiry"], lockkeeper.Fine)
	})
}

// An expired session whose row is not locked is only reported.
func TestExamineExpiryForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		holding(t, e, "a", "db")
		admin := opened(t, url)
		admin.mustExec(t, admin.sql(fmt.Sprintf("UPDATE {sessions} SET deadline_ns = deadline_ns - %d, promise_ns = 0",
			2*time.Hour)))
		wantFinding(t, examined(t, e)["expiry"], lockkeeper.Doubtful, "nobody has ended them: a")
	})
}

// Rows that don't fit together are found.
func TestExamineRows(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		holding(t, e, "a", "db")
		admin := opened(t, url)
		admin.mustExec(t, admin.sql("DELETE FROM {sessions}"))
		wantFinding(t, examined(t, e)["rows"], lockkeeper.Doubtful, "1 claims have no session")
		admin.mustExec(t, admin.sql("UPDATE {claims} SET id = 7"))
		wantFinding(t, examined(t, e)["rows"], lockkeeper.Broken, "such as a/7")
		admin.mustExec(t, admin.sql("DELETE FROM {claims}"))
		wantFinding(t, examined(t, e)["rows"], lockkeeper.Doubtful, "1 targets have no claim")
	})
}

// The examination reports that this user may not change the rows.
func TestExamineRights(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		admin := opened(t, url)
		table := admin.name("wakeups")
		user := "reader_" + fmt.Sprint(time.Now().UnixNano())
		if admin.flavour == postgres {
			admin.mustExec(t, "CREATE ROLE "+user+" LOGIN")
			admin.mustExec(t, admin.sql("GRANT USAGE ON SCHEMA lockkeeper TO "+user))
			admin.mustExec(t, admin.sql("GRANT ALL ON ALL TABLES IN SCHEMA lockkeeper TO "+user))
			admin.mustExec(t, admin.sql("GRANT USAGE ON SEQUENCE {sequences} TO "+user))
			admin.mustExec(t, "REVOKE INSERT ON "+table+" FROM "+user)
			defer admin.mustExec(t, "DROP ROLE "+user)
			defer admin.mustExec(t, "DROP OWNED BY "+user)
		} else {
			admin.mustExec(t, "CREATE USER "+user)
			for _, o := range objectsOf(mysql) {
				if o.name != "wakeups" {
					admin.mustExec(t, "GRANT ALL ON "+admin.name(o.name)+" TO "+user)
				}
			}
			admin.mustExec(t, "GRANT SELECT ON "+table+" TO "+user)
			defer admin.mustExec(t, "DROP USER "+user)
		}
		wantFinding(t, examined(t, e)["rights"], lockkeeper.Fine)
		weak := begun(t, as(t, url, user, ""))
		defer weak.Close()
		found := examined(t, weak)
		wantFinding(t, found["rights"], lockkeeper.Broken, "wakeups", "lk migrate --print")
		wantFinding(t, found["old transactions"], lockkeeper.Fine)
	})
}

// Behind a pooler of transactions no notices arrive.
func TestExamineNotices(t *testing.T) {
	pooler := testdb.PgBouncer(t, testdb.SharedPostgres(t))
	e := begun(t, pooler.Database(t))
	found := examined(t, e)
	wantFinding(t, found["wake-ups"], lockkeeper.Doubtful, "polls every")
	wantFinding(t, found["database"], lockkeeper.Fine)
}

// Settings by which commits don't wait, and followers that may not know of them.
func TestExamineServer(t *testing.T) {
	server := testdb.Postgres(t, testdb.Durable, testdb.Set("synchronous_commit", "off"),
		testdb.Set("wal_level", "replica"), testdb.Set("max_wal_senders", "2"),
		testdb.Set("max_connections", "11"), testdb.Set("autovacuum", "off"))
	e := begun(t, server.Database(t))
	found := examined(t, e)
	wantFinding(t, found["durability"], lockkeeper.Doubtful, "synchronous_commit off", "forget grants")
	wantFinding(t, found["failover"], lockkeeper.Fine, "nobody follows")
	wantFinding(t, found["connections"], lockkeeper.Doubtful, "max_connections")
	wantFinding(t, found["tables"], lockkeeper.Doubtful, "autovacuum is off")
	follow(t, server)
	e.await(t, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")
	wantFinding(t, examined(t, e)["failover"], lockkeeper.Doubtful, "1 standbys follow asynchronously",
		"synchronous_standby_names")
	opened(t, server.URL("postgres")).mustExec(t, "ALTER SYSTEM SET synchronous_standby_names = 'pg_receivewal'")
	opened(t, server.URL("postgres")).mustExec(t, "SELECT pg_reload_conf()")
	e.await(t, "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting <> ''")
	wantFinding(t, examined(t, e)["failover"], lockkeeper.Doubtful, "does not wait for them")
}

// await waits until a count is not 0.
func (e *Engine) await(t *testing.T, text string) {
	t.Helper()
	x := &examination{e, t.Context()}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(20*time.Second); n == 0; <-tick.C {
		if err := x.one(text, &n); err != nil || time.Now().After(end) {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// follow has a follower of the server's log until the test ends.
func follow(t *testing.T, server *testdb.Server) {
	t.Helper()
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_receivewal")
	if len(programs) == 0 {
		t.Fatal("there is no pg_receivewal: make tools installs it with the server")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, programs[0], "-D", t.TempDir(), "-d", server.URL("postgres"), "-s", "1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
}

// Committed and Repeated report every commit and every repetition.
func TestMeter(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		a, b := begun(t, url), begun(t, url)
		var commands, commits, conflicts, locked atomic.Int64
		a.ReportCommits(func(n int, took time.Duration) {
			commands.Add(int64(n))
			commits.Add(1)
			if took <= 0 {
				t.Errorf("it took %s", took)
			}
		})
		a.ReportRepeats(func(why string) { map[string]*atomic.Int64{"conflict": &conflicts, "locked": &locked}[why].Add(1) })
		k := holding(t, a, "a", "db")
		if n, of := commits.Load(), commands.Load(); n < 2 || of < n {
			t.Errorf("%d commits with %d commands; want both commands in one or two", n, of)
		}
		tx, err := b.db.pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec(b.db.sql("SELECT id FROM {sessions} WHERE id = 'a' FOR UPDATE")); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- a.End(t.Context(), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}) }()
		for locked.Load() == 0 {
			runtime.Gosched()
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
