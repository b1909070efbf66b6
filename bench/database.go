package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os/exec"
	"path/filepath"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// databasePeers are those that lock in a database. Those of one kind share a
// server, since only one of them is at work at a time.
func databasePeers() []peer {
	p, m := &postgres{}, &mariaDB{}
	return []peer{
		&advisoryPeer{p},
		&postgresLeasePeer{p},
		&pglockPeer{p},
		&sqllockPeer{databaseServer: p, kind: "postgres", scheme: "postgres"},
		&sqllockPeer{databaseServer: p, kind: "postgres", scheme: "postgres", each: true},
		&getLockPeer{m},
		&mariaLeasePeer{m},
		&sqllockPeer{databaseServer: m, kind: "mariadb", scheme: "mysql"},
		&sqllockPeer{databaseServer: m, kind: "mariadb", scheme: "mysql", each: true},
	}
}

// databaseServer is the part of a peer that stands on a database. The server that
// several peers share is started by the first that starts it, and stopped by the
// first that stops it.
type databaseServer interface {
	missing() error
	start(ctx context.Context, at place) error
	server() *process
	stop()
	url() string // of the database where all peers have their tables
}

// serverConnections are more than all clients have: those who gave up waiting in the
// round before may not be gone yet.
const serverConnections = "400"

// privateDatabase is a server of this run alone, with the settings for what it writes that it
// has by default: a commit is on the disk.
type privateDatabase struct{ running *testdb.Server }

func (d *privateDatabase) server() *process {
	return &process{name: d.running.String(), pid: d.running.PID(), forks: true}
}

func (d *privateDatabase) stop() {
	if d.running != nil {
		d.running.Stop()
		d.running = nil
	}
}

type postgres struct{ privateDatabase }

func (p *postgres) missing() error {
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps it out of the PATH
	if _, err := exec.LookPath("initdb"); err != nil && versions == nil {
		return errors.New("PostgreSQL is not installed: run with -setup, or apt-get install postgresql")
	}
	return nil
}

func (p *postgres) start(_ context.Context, at place) (err error) {
	if p.running == nil {
		p.running, err = testdb.StartPostgres(at.dir, testdb.Durable, testdb.Set("max_connections", serverConnections))
	}
	return err
}

func (p *postgres) url() string { return p.running.URL("postgres") }

type mariaDB struct{ privateDatabase }

func (m *mariaDB) missing() error {
	if _, err := exec.LookPath("mariadbd"); err == nil {
		return nil
	}
	if _, err := exec.LookPath("/usr/sbin/mariadbd"); err != nil { // of those who are not root
		return errors.New("MariaDB is not installed: run with -setup, or apt-get install mariadb-server-core")
	}
	return nil
}

// mariaDBName is the database where the tables are. There is none at the start.
const mariaDBName = "bench"

func (m *mariaDB) start(ctx context.Context, at place) (err error) {
	if m.running != nil {
		return nil
	}
	m.running, err = testdb.StartMariaDB(at.dir, testdb.Durable, testdb.Set("max-connections", serverConnections))
	if err != nil {
		return err
	}
	pool, err := m.connect("", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.ExecContext(ctx, "CREATE DATABASE "+mariaDBName)
	return err
}

func (m *mariaDB) url() string { return m.running.URL(mariaDBName) }

// pool connects so many times, and keeps the connections. A statement is one message:
// the driver puts its arguments into the text.
func (m *mariaDB) pool(n int) (*sql.DB, error) { return m.connect(mariaDBName, n) }

func (m *mariaDB) connect(database string, n int) (*sql.DB, error) {
	at, err := url.Parse(m.running.URL(database))
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = at.User.Username(), "tcp", at.Host, database
	config.InterpolateParams = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	return pool, nil
}
