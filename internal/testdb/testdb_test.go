package testdb_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// kinds are the databases, each with a shared and a private instance.
var kinds = []struct {
	name    string
	shared  func(testing.TB) *testdb.Server
	private func(testing.TB, ...testdb.Option) *testdb.Server
}{
	{"PostgreSQL", testdb.SharedPostgres, testdb.Postgres},
	{"MariaDB", testdb.SharedMariaDB, testdb.MariaDB},
}

// connect opens a pool, which is closed with the test.
func connect(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := opened(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func opened(url string) (*sql.DB, error) {
	rest, isMySQL := strings.CutPrefix(url, "mysql://")
	if !isMySQL {
		return sql.Open("pgx", url)
	}
	user, rest, _ := strings.Cut(rest, "@")
	addr, database, _ := strings.Cut(rest, "/")
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = user, "tcp", addr, database
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(bounded(t), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func ask(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var answer string
	if err := db.QueryRowContext(bounded(t), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

// Each test has a database of its own in the shared instance, and it is gone after it.
func TestDatabasesAreApart(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := k.shared(t)
			if again := k.shared(t); again != s {
				t.Errorf("two shared servers: %v and %v", s, again)
			}
			var first string
			t.Run("first", func(t *testing.T) {
				first = s.Database(t)
				do(t, connect(t, first), "CREATE TABLE here (n int)")
			})
			second := connect(t, s.Database(t))
			do(t, second, "CREATE TABLE here (n int)") // not there yet
			if err := connect(t, first).PingContext(bounded(t)); err == nil {
				t.Errorf("%s is still there after its test", first)
			}
		})
	}
}

// What was committed is there after a kill and after a stop, on the same port, and a
// frozen server goes on.
func TestServersEndAndStartAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := k.private(t)
			url := s.Database(t)
			db := connect(t, url)
			do(t, db, "CREATE TABLE kept (n int)")
			for i, end := range []func() error{s.Kill, s.Stop, s.Kill} {
				do(t, db, fmt.Sprintf("INSERT INTO kept VALUES (%d)", i))
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if err := connect(t, url).PingContext(bounded(t)); err == nil {
					t.Fatal("a server that was ended answers")
				}
				if err := s.Start(); err != nil {
					t.Fatal(err)
				}
				db = connect(t, url)
				if n := ask(t, db, "SELECT count(*) FROM kept"); n != fmt.Sprint(i+1) {
					t.Fatalf("after %d commits and ends: %s rows", i+1, n)
				}
			}
			if err := s.Start(); err == nil {
				t.Error("a server that runs was started again")
			}
			frozen(t, s, db)
			if err := s.Freeze(); err != nil { // its end must not wait for a thaw
				t.Fatal(err)
			}
		})
	}
}

// frozen sees that a frozen server takes connections and says nothing, and goes on when
// it is thawed.
func frozen(t *testing.T, s *testdb.Server, db *sql.DB) {
	t.Helper()
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(bounded(t), "INSERT INTO kept VALUES (100)")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatalf("after the thaw: %v", err)
	}
}

// Settings are quick without Durable, and Set is stronger than both.
func TestSettings(t *testing.T) {
	for i, c := range []struct{ speed, quick, durable, limit, set string }{
		{"SHOW fsync", "off", "on", "SHOW max_connections", "max_connections"},
		{"SELECT @@innodb_doublewrite", "0", "1", "SELECT @@max_connections", "max-connections"},
	} {
		k := kinds[i]
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			db := connect(t, k.shared(t).Database(t))
			if speed, limit := ask(t, db, c.speed), ask(t, db, c.limit); speed != c.quick || limit != "200" {
				t.Errorf("by default: %s %s, %s connections", c.speed, speed, limit)
			}
			db = connect(t, k.private(t, testdb.Durable, testdb.Set(c.set, "20")).Database(t))
			if speed, limit := ask(t, db, c.speed), ask(t, db, c.limit); speed != c.durable || limit != "20" {
				t.Errorf("durable, with 20 connections: %s %s, %s connections", c.speed, speed, limit)
			}
		})
	}
}

// A start that fails shows what the server said.
func TestFailedStartShowsTheLog(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "testdb")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_, err = testdb.StartPostgres(dir, testdb.Set("no_such_setting", "1"))
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want an error with the server's words about the setting", err)
	}
}
