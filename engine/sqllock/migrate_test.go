package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// opened is the database that a URL names, without an engine.
func opened(t *testing.T, url string) database {
	t.Helper()
	s, err := parse(url)
	if err != nil {
		t.Fatal(err)
	}
	db := s.open()
	t.Cleanup(func() { db.pool.Close() })
	return db
}

// with is a URL with one more parameter.
func with(url, parameter string) string {
	if strings.Contains(url, "?") {
		return url + "&" + parameter
	}
	return url + "?" + parameter
}

func (db database) mustExec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.pool.ExecContext(t.Context(), db.sql(statement)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// onEach runs a test on both kinds of database, beside others.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.SharedPostgres(t).Database(t))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.SharedMariaDB(t).Database(t))
	})
}

func wantError(t *testing.T, err, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("the error is %v; want %v", err, sentinel)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error is %q; want %q in it", err, word)
		}
	}
}

func TestMigrate(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		for range 2 {
			if err := Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
		}
		db := opened(t, url)
		applied := 0
		if err := db.pool.QueryRow(db.sql("SELECT count(*) FROM {migrations}")).Scan(&applied); err != nil {
			t.Fatal(err)
		}
		if applied != schemas()[db.flavour].Latest {
			t.Errorf("%d migrations have been applied; want each once, %d", applied, schemas()[db.flavour].Latest)
		}
		for _, view := range []string{"held", "waiting"} {
			rows, err := db.pool.Query(db.sql("SELECT * FROM {" + view + "}"))
			if err != nil {
				t.Fatal(err)
			}
			if err := rows.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Ten programs start at once, on a database that has no tables yet.
func TestMigrateAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				e, err := Open(ctx, url)
				if err != nil {
					t.Error(err)
					return
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// Two names in one database are two engines.
func TestOtherNames(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		names := []string{"schema=one", "schema=two"}
		if opened(t, url).flavour == mysql {
			names = []string{"prefix=one_", "prefix=two_"}
		}
		for _, name := range names {
			if err := Migrate(t.Context(), with(url, name)); err != nil {
				t.Fatal(err)
			}
		}
		one, two := opened(t, with(url, names[0])), opened(t, with(url, names[1]))
		one.mustExec(t, "INSERT INTO {hold_times} VALUES ('a', 1, 1)")
		rows := 0
		if err := two.pool.QueryRow(two.sql("SELECT count(*) FROM {hold_times}")).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows != 0 {
			t.Errorf("%s shows rows of %s", names[1], names[0])
		}
	})
}

func TestMigrateNewer(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		if err := Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		opened(t, url).mustExec(t, "INSERT INTO {migrations} (version) VALUES (99)")
		_, err := Open(t.Context(), url)
		wantError(t, err, lockkeeper.ErrInvalid, "version 99", "update this program")
		wantError(t, Migrate(t.Context(), url), lockkeeper.ErrInvalid, "version 99")
	})
}

func TestMigrateOff(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		off := with(url, "migrate=off")
		_, err := Open(t.Context(), off)
		wantError(t, err, lockkeeper.ErrUnavailable, "no tables of lockkeeper", "lk migrate")
		if found, err := opened(t, url).contents(t.Context(), opened(t, url).pool); err != nil || found.schema || found.ours {
			t.Errorf("migrate=off left %+v, %v", found, err)
		}
		if err := Migrate(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		e, err := Open(t.Context(), off)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		opened(t, url).mustExec(t, "DELETE FROM {migrations}")
		_, err = Open(t.Context(), off)
		wantError(t, err, lockkeeper.ErrUnavailable, "have version 0", "lk migrate")
	})
}

// What another program has is left as it is.
func TestMigrateForeign(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := opened(t, url)
		if db.flavour == postgres {
			db.mustExec(t, "CREATE SCHEMA lockkeeper")
		}
		db.mustExec(t, "CREATE TABLE {sessions} (cookie int)")
		before := tables(t, db)
		_, err := Open(t.Context(), url)
		wantError(t, err, lockkeeper.ErrInvalid, "another program's", "sessions")
		if after := tables(t, db); before != after {
			t.Errorf("there were %s, and now there are %s", before, after)
		}
		db.mustExec(t, "CREATE TABLE {migrations} (name text)")
		before = tables(t, db)
		_, err = Open(t.Context(), url)
		wantError(t, err, lockkeeper.ErrInvalid, "another program's", "migrations")
		if after := tables(t, db); before != after {
			t.Errorf("there were %s, and now there are %s", before, after)
		}
		if db.flavour == postgres { // which tells kinds concurrent
			db.mustExec(t, "DROP TABLE {migrations}")
			db.mustExec(t, "CREATE TABLE {migrations} (version text)")
			_, err = Open(t.Context(), url)
			wantError(t, err, lockkeeper.ErrInvalid, "another program's", "migrations")
		}
	})
}

// tables are the names of all tables and their columns.
func tables(t *testing.T, db database) string {
	t.Helper()
	where := "database()"
	if db.flavour == postgres {
		where = "'lockkeeper'"
	}
	rows, err := db.pool.Query("SELECT table_schema, table_name, column_name FROM information_schema.columns WHERE " +
		"table_schema = " + where + " ORDER BY 1, 2, 3")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var schema, table, column string
		if err := rows.Scan(&schema, &table, &column); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s.%s.%s", schema, table, column))
	}
	return strings.Join(all, " ")
}

// A schema that somebody made for us is empty, and is taken.
func TestMigrateEmptySchema(t *testing.T) {
	url := testdb.SharedPostgres(t).Database(t)
	opened(t, url).mustExec(t, "CREATE SCHEMA lockkeeper")
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
}

// A migration may lose its connection after any statement, as by a kill. Then Postgres has nothing
// or all of it; and the next migration does the rest.
func TestMigrateCut(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cutMigrations(t, testdb.SharedPostgres(t), "schema", 3, func(db database, struck string) {
			found, err := db.contents(t.Context(), db.pool)
			if err != nil || found.schema != found.ours || found.ours != (found.others != "") {
				t.Errorf("cut after %q: %+v, %v", struck, found, err)
			}
		})
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		cutMigrations(t, testdb.SharedMariaDB(t), "prefix", 2, func(database, string) {})
	})
}

// cutMigrations cuts every migration after another statement, of which it takes each
// of that step, and migrates again.
func cutMigrations(t *testing.T, server *testdb.Server, name string, step int, look func(db database, struck string)) {
	proxy := testdb.NewProxy(t, server)
	whole := proxy.Database(t)
	for n := 1; ; n += step {
		url := with(whole, fmt.Sprintf("%s=cut_%d", name, n))
		proxy.CutAfter(n)
		_ = Migrate(t.Context(), url) // mostly it fails
		struck := proxy.Struck()
		proxy.Pass()
		if struck == "" {
			if n < 10 {
				t.Errorf("only %d statements were seen", n)
			}
			return
		}
		db := opened(t, url)
		look(db, struck)
		if err := Migrate(t.Context(), url); err != nil {
			t.Errorf("cut after %q: %v", struck, err)
			continue
		}
		use(t, db)
		if db.flavour == mysql {
			latches := 0
			if err := db.pool.QueryRow(db.sql("SELECT count(*) FROM {latches}")).Scan(&latches); err != nil || latches != 4097 {
				t.Errorf("cut after %q: %d latches, %v; want 4097", struck, latches, err)
			}
		}
	}
}

// Ten programs start at once behind a pooler that gives each transaction another connection, of
// which there are fewer.
func TestMigrateBehindPgBouncer(t *testing.T) {
	t.Parallel()
	url := testdb.PgBouncer(t, testdb.SharedPostgres(t)).Database(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A process that waits for the migration of another one gives up with its context.
func TestMigrateWaits(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := opened(t, url)
		conn, err := db.pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		lock := versionStore{db}
		if err := lock.Lock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		wantError(t, Migrate(ctx, url), lockkeeper.ErrUnavailable)
		if err := lock.Unlock(t.Context(), conn, false); err != nil {
			t.Fatal(err)
		}
		if err := Migrate(t.Context(), url); err != nil {
			t.Error(err)
		}
	})
}
