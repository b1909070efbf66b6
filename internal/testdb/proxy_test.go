package testdb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// insert inserts a row in a transaction, on a connection that is there already.
func insert(ctx context.Context, conn *sql.Conn, id int, dollar bool) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	query := "INSERT INTO rows_here VALUES (?)"
	if dollar {
		query = "INSERT INTO rows_here VALUES ($1)"
	}
	if _, err := tx.ExecContext(ctx, query, id); err != nil {
		return err
	}
	return tx.Commit()
}

// A connection is cut at every request of a transaction, before it and after it: what
// was done is exactly what had arrived.
func TestCutAtEveryRequest(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := testdb.NewProxy(t, k.shared(t))
			url := p.Database(t)
			db := connect(t, url)
			do(t, db, "CREATE TABLE rows_here (id int PRIMARY KEY)")
			for way, cut := range map[string]func(int){"before": p.CutBefore, "after": p.CutAfter} {
				var commits, cuts int
				for n := 1; ; n++ {
					do(t, db, "DELETE FROM rows_here")
					conn, err := db.Conn(bounded(t))
					if err != nil {
						t.Fatal(err)
					}
					cut(n)
					err = insert(bounded(t), conn, n, k.name == "PostgreSQL")
					struck := p.Struck()
					requests := p.Requests()
					p.Pass()
					conn.Close()
					rows := ask(t, db, "SELECT count(*) FROM rows_here")
					if struck == "" {
						if err != nil || rows != "1" || requests != n-1 {
							t.Errorf("nothing was cut %s request %d, of %d: error %v, %s rows", way, n, requests, err, rows)
						}
						break
					}
					t.Logf("cut %s request %d, %s: %v", way, n, struck, err)
					cuts++
					if err == nil {
						t.Errorf("cut %s request %d, %s: no error", way, n, struck)
					}
					want := "0"
					if way == "after" && strings.HasPrefix(strings.ToUpper(struck), "COMMIT") {
						want = "1"
						commits++
					}
					if rows != want {
						t.Errorf("cut %s request %d, %s: %s rows, want %s", way, n, struck, rows, want)
					}
				}
				if cuts != 4 && cuts != 5 || way == "after" && commits != 1 {
					t.Errorf("cut %s %d requests, of which %d COMMIT; want BEGIN, INSERT in one to three, and COMMIT", way, cuts,
						commits)
				}
			}
		})
	}
}

// A request that is held back arrives when others have been there since.
func TestRequestArrivesLate(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := testdb.NewProxy(t, k.shared(t))
			db := connect(t, p.Database(t))
			do(t, db, "CREATE TABLE rows_here (id int PRIMARY KEY)")
			tx, err := db.BeginTx(bounded(t), nil)
			if err == nil {
				_, err = tx.ExecContext(bounded(t), "INSERT INTO rows_here VALUES (1)")
			}
			if err != nil {
				t.Fatal(err)
			}
			p.HoldBack(1)
			if err := tx.Commit(); err == nil {
				t.Error("a COMMIT that was held back had no error")
			}
			do(t, db, "INSERT INTO rows_here VALUES (2)")
			if rows := ask(t, db, "SELECT count(*) FROM rows_here"); rows != "1" {
				t.Errorf("before the COMMIT arrives: %s rows", rows)
			}
			if !p.Deliver() {
				t.Error("nothing was held back")
			}
			if rows := ask(t, db, "SELECT count(*) FROM rows_here"); rows != "2" {
				t.Errorf("after the COMMIT arrived: %s rows", rows)
			}
			if p.Deliver() {
				t.Error("delivered twice")
			}
		})
	}
}

// Of several statements in one request, those arrive that come before the message that
// is cut, and the server does them.
func TestCutWithinARequest(t *testing.T) {
	p := testdb.NewProxy(t, testdb.SharedPostgres(t))
	url := p.Database(t)
	db := connect(t, url)
	do(t, db, "CREATE TABLE rows_here (id int PRIMARY KEY)")
	const messages = 3*4 + 1 // Parse, Bind, Describe, Execute, thrice, and Sync
	for n := 1; n <= messages; n++ {
		conn, err := pgx.Connect(bounded(t), url)
		if err != nil {
			t.Fatal(err)
		}
		p.CutWithin(n)
		pipe := conn.PgConn().StartPipeline(bounded(t))
		for _, query := range []string{"BEGIN", "INSERT INTO rows_here VALUES (1)", "COMMIT"} {
			pipe.SendQueryParams(query, nil, nil, nil, nil)
		}
		if err := errors.Join(pipe.Sync(), pipe.Close()); err == nil {
			t.Errorf("cut at message %d: no error", n)
		}
		if p.Struck() == "" {
			t.Fatalf("message %d did not come, after %d", n, p.Messages())
		}
		conn.Close(bounded(t))
		want := "0"
		if n == messages { // COMMIT was executed
			want = "1"
		}
		if rows := ask(t, db, "SELECT count(*) FROM rows_here"); rows != want {
			t.Errorf("cut at message %d (%s): %s rows, want %s", n, p.Struck(), rows, want)
		}
	}
}

// Of requests that were sent together, those before the one that is cut are answered.
func TestCutAmongRequestsSentTogether(t *testing.T) {
	p := testdb.NewProxy(t, testdb.SharedPostgres(t))
	conn, err := pgx.Connect(bounded(t), p.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(bounded(t))
	p.CutAfter(3)
	pipe := conn.PgConn().StartPipeline(bounded(t))
	for range 4 {
		pipe.SendQueryParams("SELECT 1", nil, nil, nil, nil)
		pipe.SendPipelineSync()
	}
	if err := pipe.Flush(); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for {
		results, err := pipe.GetResults()
		if err != nil {
			break
		}
		if rows, ok := results.(*pgconn.ResultReader); ok && rows.Read().Err == nil {
			answers++
		}
	}
	if answers != 2 {
		t.Errorf("%d answers, want those of 2 requests", answers)
	}
}

// What is swallowed is answered by silence, on old and new connections, until it ends.
func TestSwallowedIsSilence(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := testdb.NewProxy(t, k.shared(t))
			url := p.Database(t)
			db := connect(t, url)
			idle, err := db.Conn(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			p.Swallow()
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, old := db.ExecContext(short, "SELECT 1")
			fresh := connect(t, url).PingContext(short)
			for _, err := range []error{old, fresh} {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want to wait until the deadline", err)
				}
			}
			p.Pass()
			if _, err := idle.ExecContext(bounded(t), "SELECT 1"); err == nil {
				t.Error("a connection that was swallowed works again")
			}
			if got := ask(t, db, "SELECT 'back'"); got != "back" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// All connections can be broken at once; new ones pass.
func TestBreakAll(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := testdb.NewProxy(t, k.shared(t))
			db := connect(t, p.Database(t))
			conn, err := db.Conn(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			p.Break()
			if _, err := conn.ExecContext(bounded(t), "SELECT 1"); err == nil {
				t.Error("a broken connection works")
			}
			conn.Close()
			if got := ask(t, db, "SELECT 'back'"); got != "back" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Who is called when a request was answered finds it done, and the client has not got
// the answer yet.
func TestCalledBetweenRequestAndAnswer(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := testdb.NewProxy(t, k.shared(t))
			url := p.Database(t)
			db, other := connect(t, url), connect(t, url)
			do(t, db, "CREATE TABLE rows_here (id int PRIMARY KEY)")
			if err := other.PingContext(bounded(t)); err != nil {
				t.Fatal(err)
			}
			conn, err := db.Conn(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answered := false
			calls, rows := 0, ""
			p.Call(1, func() {
				calls++
				rows = ask(t, other, "SELECT count(*) FROM rows_here")
				if answered {
					t.Error("the client was answered before the call returned")
				}
			})
			_, err = conn.ExecContext(bounded(t), "INSERT INTO rows_here VALUES (1)")
			answered = true
			if err != nil || calls != 1 || rows != "1" {
				t.Errorf("called %d times, found %s rows; the client: %v", calls, rows, err)
			}
		})
	}
}
