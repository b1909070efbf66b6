package testdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var pgbouncer = &program{
	name: "PgBouncer", scheme: "postgres", query: "?sslmode=disable",
	ready: "process up",
	fast:  syscall.SIGTERM, immediate: syscall.SIGKILL,
	prepare: func(s *Server) (*exec.Cmd, error) { return nil, os.MkdirAll(s.data(), 0o755) },
	serve:   servePgBouncer,
}

// PgBouncer starts a PgBouncer before a PostgreSQL for one test, which ends with it.
// It pools transactions: each is on some one of at most 4 connections to a database,
// whatever connection of at most 200 its client has. Settings, by Set, are those of
// its configuration file.
func PgBouncer(t testing.TB, pg *Server, options ...Option) *Server {
	t.Helper()
	return openFor(t, pgbouncer, pg, options)
}

func servePgBouncer(s *Server) (*exec.Cmd, error) {
	program, err := findProgram("pgbouncer", "PgBouncer")
	if err != nil {
		return nil, err
	}
	users := filepath.Join(s.dir, "users.txt")
	var b strings.Builder
	fmt.Fprintf(&b, "[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\n", s.behind.Port())
	for _, set := range s.settings.all([][2]string{
		{"listen_addr", "127.0.0.1"}, {"listen_port", fmt.Sprint(s.port)}, {"unix_socket_dir", ""},
		{"auth_type", "trust"}, {"auth_file", users}, {"admin_users", userName},
		{"pool_mode", "transaction"}, {"default_pool_size", "4"}, {"max_client_conn", "200"},
	}, nil) {
		fmt.Fprintf(&b, "%s = %s\n", set[0], set[1])
	}
	if err := os.WriteFile(users, []byte(`"`+userName+`" ""`+"\n"), 0o644); err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, "pgbouncer.ini")
	return exec.Command(program, config), os.WriteFile(config, []byte(b.String()), 0o644)
}
