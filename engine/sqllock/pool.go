package sqllock

import (
	"context"
	"database/sql"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkeeper/lockkeeper"
)

// idleBound is how long an unused connection stays open: less than firewalls and proxies remember
// it.
const idleBound = 3 * time.Minute

// pingAfter is how long a connection of Postgres may be unused without a ping.
const pingAfter = time.Minute

// shouldPing reports whether to ping a connection. For the driver, a new connection has been idle
// since the year 1.
func shouldPing(_ context.Context, p stdlib.ShouldPingParams) bool {
	return p.IdleDuration > pingAfter && p.IdleDuration < 24*time.Hour
}

// Open opens the locks in the database that a URL names, and creates their tables if there are
// none:
//
//	postgres://USER@HOST:PORT/DATABASE     Postgres 13 and later; or postgresql:
//	mysql://USER@HOST:PORT/DATABASE        MariaDB 10.6 and later; or mariadb:
//
// MySQL 8 and later are accepted too, and should work; no test has run there.
//
// Further parameters follow a "?", with "&" between them. Some are lockkeeper's own:
//
//	schema=NAME    of Postgres: where the tables are, instead of "lockkeeper"
//	prefix=NAME_   of MariaDB and MySQL: the beginning of their names, instead of "lockkeeper_"
//	migrate=off    create and change no tables: an administrator calls [Migrate], or "lk migrate"
//	pool=N         use at most N connections, from 2 to 100, instead of 8
//
// The others for Postgres are those of libpq, such as sslmode or sslrootcert. A password may be in
// PGPASSWORD, in ~/.pgpass or in a service's file (PGSERVICE) as with psql. For MariaDB and MySQL
// there are socket=FILE, tls=true (or preferred, or skip-verify), and ca=FILE, cert=FILE and
// key=FILE. If the URL does not name user, password, host, port or socket, Open takes them from
// [client] in ~/.my.cnf, and the password then from MYSQL_PWD, as the client of MySQL does.
//
// Any number of processes may open the same locks at once. ctx bounds the opening alone.
//
// Open returns ErrInvalid for a wrong URL, a database that is too old or does not exist, and tables
// of another program or of a newer version of this one; ErrDenied if the role may not connect, or
// not create the tables; and ErrUnavailable for everything that may get better soon. No error shows
// the password.
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

// choices are the settings that the options of New change.
type choices struct {
	naming
	migrates bool
}

// Schema puts the tables into that schema of Postgres, instead of "lockkeeper".
func Schema(name string) Option {
	return func(c *choices) error { return c.rename(postgres, name) }
}

// Prefix is the beginning of the names of the tables in MariaDB or MySQL, instead of "lockkeeper_".
func Prefix(name string) Option {
	return func(c *choices) error { return c.rename(mysql, name) }
}

// NoMigration creates and changes no tables: an administrator calls [Migrate], or "lk migrate".
func NoMigration() Option {
	return func(c *choices) error {
		c.migrates = false
		return nil
	}
}

// New opens the locks in a database to which the application already has a pool. The driver must be
// that of github.com/jackc/pgx/v5/stdlib (whose OpenDBFromPool makes such a pool from a pgxpool) or
// github.com/go-sql-driver/mysql; New refuses others with ErrInvalid.
//
// A pool of MariaDB or MySQL needs interpolateParams=true, multiStatements=true and
// clientFoundRows=true; the error says so if they are missing. The engine uses several connections
// at once, and may keep one: a pool of fewer than four makes it slow. Closing the engine leaves the
// pool open; the pool must not be closed before the engine.
//
// The driver of Postgres cancels a statement whose answer it gives up, also a commit that waits for a
// synchronous replica, which then is visible without it. The connections of [Open] do not.
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

// checkSettings refuses a pool of MariaDB or MySQL whose connections lack the settings of [Open].
// The driver does not say which ones it has, so this tries them.
func (db database) checkSettings(ctx context.Context) error {
	if db.flavour == postgres {
		return nil
	}
	// A prepared statement, as without interpolateParams, can't be several statements either.
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

// checkFoundRows is checkSettings for a setting that needs a table.
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
