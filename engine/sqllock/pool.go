package sqllock

import (
	"context"
	"database/sql"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
)

// idleBound is after how long an unused connection is closed: before firewalls and
// proxies forget it, which they do without a word.
const idleBound = 3 * time.Minute

// pingAfter is after how long unused a connection of Postgres is asked whether it lives.
const pingAfter = time.Minute

// shouldPing says whether a connection is asked. One that was not used yet has been idle
// since the year 1 for the driver.
func shouldPing(_ context.Context, p stdlib.ShouldPingParams) bool {
	return p.IdleDuration > pingAfter && p.IdleDuration < 24*time.Hour
}

// Open opens the locks in the database that a URL names, and makes their tables there
// if it has none yet:
//
//	postgres://USER@HOST:PORT/DATABASE     Postgres 13 and later; or postgresql:
//	mysql://USER@HOST:PORT/DATABASE        MariaDB 10.6 and later; or mariadb:
//
// MySQL 8 and later are taken too, and should do; no test has run there.
//
// Further parameters follow a "?", with "&" between them. Some are lockkeeper's own:
//
//	schema=NAME    of Postgres: where the tables are, instead of "lockkeeper"
//	prefix=NAME_   of MariaDB and MySQL: what their names begin with, instead of "lockkeeper_"
//	migrate=off    make or change no tables: somebody calls [Migrate], or "lk migrate"
//	pool=N         use at most N connections, from 2 to 100, instead of 8
//
// Those of Postgres are libpq's, such as sslmode or sslrootcert. A password may be in
// PGPASSWORD, in ~/.pgpass or in a service's file (PGSERVICE) as with psql. For MariaDB
// and MySQL there are socket=FILE, tls=true (or preferred, or skip-verify), and
// ca=FILE, cert=FILE and key=FILE; user, password, host, port and socket that
// the URL does not name are taken from [client] in ~/.my.cnf, and the password then from
// MYSQL_PWD, as by their own client.
//
// Any number of processes may open the same locks at once. ctx bounds the opening alone.
//
// What can't be right is refused with ErrInvalid: a URL, a database that is too old or not
// there, tables of another program or of a newer version of this one. Who may not connect,
// or not make the tables, gets ErrDenied, and ErrUnavailable is for all that may be better soon.
// No error shows the password.
func Open(ctx context.Context, url string) (*Engine, error) {
	s, err := parse(url)
	if err != nil {
		return nil, err
	}
	db := s.open()
	err = db.ready(ctx, s.migrates)
	if err == nil {
		var e *Engine
		if e, err = newEngine(ctx, db); err == nil {
			return e, nil
		}
	}
	db.pool.Close()
	return nil, err
}

// open makes the pool, which connects when it is used.
func (s source) open() database {
	pool := sql.OpenDB(s.connector)
	pool.SetMaxOpenConns(s.pool)
	pool.SetMaxIdleConns(s.pool)
	pool.SetConnMaxIdleTime(idleBound)
	return database{naming: s.naming, pool: pool, owns: true, plainly: s.plainly}
}

// Option is a choice for [New].
type Option func(*choices) error

// choices are what the options of New choose.
type choices struct {
	naming
	migrates bool
}

// Schema has the tables in that schema of Postgres, instead of "lockkeeper".
func Schema(name string) Option {
	return func(c *choices) error { return c.rename(postgres, name) }
}

// Prefix has the names of the tables in MariaDB or MySQL begin so, instead of with
// "lockkeeper_".
func Prefix(name string) Option {
	return func(c *choices) error { return c.rename(mysql, name) }
}

// NoMigration makes or changes no tables: somebody calls [Migrate], or "lk migrate".
func NoMigration() Option {
	return func(c *choices) error {
		c.migrates = false
		return nil
	}
}

// New opens the locks in a database to which the application has a pool already. Its
// driver is that of github.com/jackc/pgx/v5/stdlib (whose OpenDBFromPool makes such a pool
// from a pgxpool) or github.com/go-sql-driver/mysql; another is refused with ErrInvalid.
//
// Settings that the pool of MariaDB or MySQL needs are named by the error if they are missing:
// interpolateParams=true, multiStatements=true and clientFoundRows=true. The engine uses several
// connections at once, of which one may be kept: a pool of fewer than four makes it slow. Closing
// the engine leaves the pool open; the pool must not be closed before the engine.
//
// Everything else is as with [Open].
func New(ctx context.Context, db *sql.DB, options ...Option) (*Engine, error) {
	c := choices{migrates: true}
	switch d := db.Driver().(type) {
	case *stdlib.Driver:
		c.naming = naming{postgres, defaultSchema}
	case *mysqldriver.MySQLDriver:
		c.naming = naming{mysql, defaultPrefix}
	default:
		return nil, lockkeeper.Invalid("a pool of %T: use one of github.com/jackc/pgx/v5/stdlib for Postgres, or of "+
			"github.com/go-sql-driver/mysql for MariaDB and MySQL", d)
	}
	for _, option := range options {
		if err := option(&c); err != nil {
			return nil, err
		}
	}
	its := database{naming: c.naming, pool: db}
	if err := its.checkSettings(ctx); err != nil {
		return nil, err
	}
	if err := its.ready(ctx, c.migrates); err != nil {
		return nil, err
	}
	if err := its.checkFoundRows(ctx); err != nil {
		return nil, err
	}
	return newEngine(ctx, its)
}

// checkSettings refuses a pool of MariaDB or MySQL whose connections have not the settings
// that [Open] gives them. The driver doesn't tell, so it is tried out.
func (db database) checkSettings(ctx context.Context) error {
	if db.flavour == postgres {
		return nil
	}
	// A statement that is prepared, as without interpolateParams, can't be several either.
	rows, err := db.pool.QueryContext(ctx, "SELECT ?; SELECT ?", 1, 2)
	if err == nil {
		err = rows.Close()
	}
	if code(err) == "1064" {
		return errSettings
	}
	alone := true
	if err == nil {
		err = db.pool.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&alone)
	}
	if err == nil && !alone {
		return errSettings
	}
	return db.refusal(err)
}

// checkFoundRows is checkSettings for what needs a table to be tried out.
func (db database) checkFoundRows(ctx context.Context) error {
	if db.flavour == postgres {
		return nil
	}
	tx, err := db.pool.BeginTx(ctx, nil)
	if err != nil {
		return db.refusal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, db.sql("INSERT INTO {sequences} () VALUES ()")); err != nil {
		return db.refusal(err)
	}
	updated, err := tx.ExecContext(ctx, db.sql("UPDATE {sequences} SET n = n WHERE n = last_insert_id()"))
	if err != nil {
		return db.refusal(err)
	}
	if found, err := updated.RowsAffected(); err != nil || found != 1 {
		return errSettings
	}
	return nil
}

var errSettings = lockkeeper.Invalid("the pool's connections need other settings: open it with %s",
	"interpolateParams=true&multiStatements=true&clientFoundRows=true&autocommit=1")
