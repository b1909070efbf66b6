package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// as is a URL with another user.
func as(t *testing.T, text, user, password string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// What "lk migrate --print" prints is what Migrate does, and the rights in it suffice to
// use the locks, and for nothing else.
func TestMigrationAndGrants(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		script, err := Migration(url)
		if err != nil {
			t.Fatal(err)
		}
		admin := opened(t, url)
		runScript(t, admin, script)
		user := "plain_" + strings.NewReplacer("/", "_").Replace(strings.ToLower(t.Name()))[:20]
		create, drop := "CREATE ROLE %s LOGIN", []string{"DROP OWNED BY %s", "DROP ROLE %s"}
		if admin.flavour == mysql {
			create, drop = "CREATE USER %s", []string{"DROP USER %s"}
		}
		admin.mustExec(t, fmt.Sprintf(create, user))
		defer func() {
			for _, statement := range drop {
				admin.mustExec(t, fmt.Sprintf(statement, user))
			}
		}()
		its := as(t, url, user, "")
		_, err = Open(t.Context(), its)
		wantError(t, err, lockkeeper.ErrDenied)
		for line := range strings.Lines(script) {
			if grant, found := strings.CutPrefix(line, "-- GRANT "); found {
				grant, _, _ = strings.Cut(grant, ";")
				admin.mustExec(t, "GRANT "+strings.ReplaceAll(grant, "ROLE", user))
			}
		}
		e, err := Open(t.Context(), its)
		if err != nil {
			t.Fatal(err)
		}
		client := lockkeeper.New(e)
		if admin.flavour == postgres {
			if err := client.Do(t.Context(), "a/b", func(context.Context) error { return nil }); err != nil {
				t.Errorf("a lock of a plain user: %v", err)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		use(t, opened(t, its))
		name := "schema=mine"
		if admin.flavour == mysql {
			name = "prefix=mine_"
		}
		_, err = Open(t.Context(), with(its, name))
		wantError(t, err, lockkeeper.ErrDenied, "lk migrate")
		if _, err := opened(t, its).pool.Exec(admin.sql("INSERT INTO {migrations} (version) VALUES (77)")); err == nil {
			t.Error("a plain user may change the version")
		}
		if err := Migrate(t.Context(), url); err != nil {
			t.Errorf("after the script: %v", err)
		}
		admin.mustExec(t, "REVOKE INSERT ON {sessions} FROM "+user)
		_, err = openEngine(t, its).Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
		wantError(t, err, lockkeeper.ErrDenied, "lk migrate --print")
	})
}

// runScript does what psql or mysql would do with a script.
func runScript(t *testing.T, db database, script string) {
	t.Helper()
	if db.flavour == mysql {
		db.mustExec(t, script)
		return
	}
	conn, err := db.pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error {
		_, err := c.(*stdlib.Conn).Conn().PgConn().Exec(t.Context(), script).ReadAll()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// use runs the kinds of statements that the engine runs on each table, and reads the views.
func use(t *testing.T, db database) {
	t.Helper()
	for _, o := range objectsOf(db.flavour) {
		switch {
		case o.kind == "SEQUENCE":
			db.mustExec(t, "SELECT nextval('{"+o.name+"}')")
		case o.kind == "VIEW" || o == versions:
			db.mustExec(t, "SELECT count(*) FROM {"+o.name+"}")
		default:
			db.mustExec(t, "SELECT * FROM {"+o.name+"} FOR UPDATE", "DELETE FROM {"+o.name+"} WHERE 1 = 2")
		}
	}
	db.mustExec(t, "INSERT INTO {hold_times} VALUES ('a', 1, 1)", "UPDATE {hold_times} SET at_ns = 2 WHERE path = 'a'")
}

// The views show text that people can read, and only claims of sessions that have not expired.
func TestViews(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		if err := Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		db := opened(t, url)
		now := "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) * 1000)"
		if db.flavour == postgres {
			now = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
		}
		for _, s := range []struct{ id, left string }{{"alive", "30000000000"}, {"dead", "-1000000000"}} {
			db.mustExec(t, fmt.Sprintf("INSERT INTO {sessions} VALUES ('%s', 'open', 'fritz', '', '', 1, %s + %s, NULL, 1, "+
				"1, 1, 1, '', '', 1)", s.id, now, s.left))
			for id, class := range []int{0, 2} {
				db.mustExec(t,
					fmt.Sprintf(`INSERT INTO {claims} VALUES ('%s', %d, 'held', '[]', 'fritz', '', '', 0, 7, 8, '',
						%[3]s - 5000000000, %[3]s - 5000000000,
					NULL, NULL, NULL, 0, 0, 0, 1, 0, '', NULL, NULL)`, s.id, id, now),
					fmt.Sprintf("INSERT INTO {targets} VALUES ('a/é', %d, 0, 7, '%s', %d, 2)", class, s.id, id))
			}
		}
		for _, view := range []string{"held", "waiting"} {
			var path, mode, who, session string
			var seconds float64
			if err := db.pool.QueryRow(db.sql("SELECT path, mode, who, session, seconds FROM {"+view+"}")).Scan(&path, &mode,
				&who, &session, &seconds); err != nil {
				t.Fatal(err)
			}
			if path != "a/é" || mode != "shared" || who != "fritz" || session != "alive" || seconds < 4.9 || seconds > 60 {
				t.Errorf("%s shows %s %s %s %s %v", view, path, mode, who, session, seconds)
			}
			rows := 0
			if err := db.pool.QueryRow(db.sql("SELECT count(*) FROM {" + view + "}")).Scan(&rows); err != nil || rows != 1 {
				t.Errorf("%s has %d rows, %v; want 1", view, rows, err)
			}
		}
	})
}

// A real server that wants a password gets it from where people keep it.
func TestPasswordsOfPostgres(t *testing.T) {
	hba, err := os.CreateTemp("", "hba") // t.TempDir is not open to the server's user
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(hba.Name())
	if err := os.Chmod(hba.Name(), 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(hba, "host all locker all scram-sha-256\nhost all all all trust")
	if err := hba.Close(); err != nil {
		t.Fatal(err)
	}
	server := testdb.Postgres(t, testdb.Set("hba_file", hba.Name()))
	url := server.Database(t)
	opened(t, url).mustExec(t, "CREATE ROLE locker LOGIN SUPERUSER PASSWORD 's3cret'")
	home := t.TempDir()
	t.Setenv("HOME", home)
	refused := func(url string) {
		t.Helper()
		err := Migrate(t.Context(), url)
		wantError(t, err, lockkeeper.ErrDenied, "PGPASSWORD")
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the error is %q", err)
		}
	}
	refused(as(t, url, "locker", ""))
	refused(as(t, url, "locker", "wr0ng"))
	let := func() {
		t.Helper()
		if err := Migrate(t.Context(), as(t, url, "locker", "")); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("PGPASSWORD", "s3cret")
	let()
	t.Setenv("PGPASSWORD", "")
	pass := filepath.Join(home, ".pgpass")
	if err := os.WriteFile(pass, []byte("*:*:*:locker:s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSFILE", pass) // where pgx looks in the home of the user's account, not in HOME
	let()
	t.Setenv("PGPASSFILE", os.DevNull)
	services := filepath.Join(home, "services")
	text := fmt.Sprintf("[locks]\nhost=127.0.0.1\nport=%d\nuser=locker\npassword=s3cret\nsslmode=disable\n"+
		"dbname=postgres\n", server.Port())
	if err := os.WriteFile(services, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGSERVICEFILE", services)
	t.Setenv("PGSERVICE", "locks")
	if err := Migrate(t.Context(), "postgres://"); err != nil {
		t.Error(err)
	}
}

func TestPasswordsOfMariaDB(t *testing.T) {
	server := testdb.SharedMariaDB(t)
	url := server.Database(t)
	admin := opened(t, url)
	admin.mustExec(t, "CREATE USER locker@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON *.* TO locker@'%'")
	defer admin.mustExec(t, "DROP USER locker@'%'")
	home := t.TempDir()
	t.Setenv("HOME", home)
	err := Migrate(t.Context(), as(t, url, "locker", "wr0ng"))
	wantError(t, err, lockkeeper.ErrDenied, "MYSQL_PWD")
	if err := Migrate(t.Context(), as(t, url, "locker", "s3cret")); err != nil {
		t.Error(err)
	}
	t.Setenv("MYSQL_PWD", "s3cret")
	if err := Migrate(t.Context(), as(t, url, "locker", "")); err != nil {
		t.Error(err)
	}
	t.Setenv("MYSQL_PWD", "wr0ng") // and the file counts more
	text := fmt.Sprintf("[client]\nuser=locker\npassword=s3cret\nhost=127.0.0.1\nport=%d\n", server.Port())
	if err := os.WriteFile(filepath.Join(home, ".my.cnf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), "mysql:///"+url[strings.LastIndex(url, "/")+1:]); err != nil {
		t.Error(err)
	}
}

// Each fault of the database has its own error.
func TestOpenRefused(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		gone := url[:strings.LastIndex(url, "/")] + "/no_such" + url[strings.LastIndex(url, "/")+len("/test_1"):]
		_, err := Open(t.Context(), gone)
		wantError(t, err, lockkeeper.ErrInvalid, "no such database")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = Open(ctx, url)
		wantError(t, err, lockkeeper.ErrUnavailable, "canceled")
	})
	_, err := Open(t.Context(), "postgres://me:s3cret@127.0.0.1:1/d")
	wantError(t, err, lockkeeper.ErrUnavailable, "127.0.0.1:1")
	_, other := Open(t.Context(), "mysql://me:s3cret@127.0.0.1:1/d")
	wantError(t, other, lockkeeper.ErrUnavailable, "127.0.0.1:1")
	for _, err := range []error{err, other} {
		if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("the error is %q", err)
		}
	}
	_, err = Open(t.Context(), with(testdb.SharedPostgres(t).Database(t), "shema=x"))
	wantError(t, err, lockkeeper.ErrInvalid, "shema", "schema, migrate and pool")
}

func TestNew(t *testing.T) {
	postgresURL := testdb.SharedPostgres(t).Database(t)
	pool, err := pgxpool.New(t.Context(), postgresURL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, db := range []*sql.DB{stdlib.OpenDBFromPool(pool), mustOpen(t, "pgx", postgresURL)} {
		mustNew(t, db, Schema("others"))
		_, err = New(t.Context(), db, Prefix("others_"))
		wantError(t, err, lockkeeper.ErrInvalid, "schema=NAME")
		_, err = New(t.Context(), db, NoMigration())
		wantError(t, err, lockkeeper.ErrUnavailable, "lk migrate")
		db.Close()
	}
	config := mysqldriver.NewConfig()
	server := testdb.SharedMariaDB(t)
	u, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", server.Addr(), u.Path[1:]
	settings := []*bool{&config.MultiStatements, &config.InterpolateParams, &config.ClientFoundRows}
	for i := range settings {
		*settings[i] = true
	}
	db := mustOpen(t, "mysql", config.FormatDSN())
	mustNew(t, db, Prefix("others_"))
	for i := range settings {
		*settings[i] = false
		_, err := New(t.Context(), mustOpen(t, "mysql", config.FormatDSN()))
		wantError(t, err, lockkeeper.ErrInvalid, "clientFoundRows=true")
		*settings[i] = true
	}
	_, err = New(t.Context(), sql.OpenDB(strangeConnector{}))
	wantError(t, err, lockkeeper.ErrInvalid, "pgx", "go-sql-driver")
}

func mustOpen(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// mustNew opens an engine and closes it, after which the pool still works.
func mustNew(t *testing.T, db *sql.DB, options ...Option) {
	t.Helper()
	e, err := New(t.Context(), db, options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Ping(); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

type strangeConnector struct{}

func (strangeConnector) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (strangeConnector) Driver() driver.Driver                        { return strangeDriver{} }

type strangeDriver struct{}

func (strangeDriver) Open(string) (driver.Conn, error) { return nil, driver.ErrBadConn }
