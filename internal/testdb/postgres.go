package testdb

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

var postgres = &program{
	name: "PostgreSQL", scheme: "postgres", query: "?sslmode=disable",
	ready: "database system is ready to accept connections",
	fast:  syscall.SIGINT, immediate: syscall.SIGQUIT,
	prepare: preparePostgres, serve: servePostgres, killed: forgetPostgres,
	create: "CREATE DATABASE %s TEMPLATE template0", drop: "DROP DATABASE %s WITH (FORCE)",
}

// Postgres starts a PostgreSQL for one test. It ends with the test, and its data with
// it.
func Postgres(t testing.TB, options ...Option) *Server {
	t.Helper()
	return openFor(t, postgres, nil, options)
}

// StartPostgres starts a PostgreSQL with its data in a folder, which is made if it is
// missing, and used as it is if it has data of an earlier start. For root's sake the
// folder is given to the user nobody. The caller stops the server, and removes the
// folder. Its path should be short, for the sockets in it.
func StartPostgres(dir string, options ...Option) (*Server, error) {
	return open(postgres, dir, nil, options)
}

func preparePostgres(s *Server) (*exec.Cmd, error) {
	initdb, err := postgresProgram("initdb")
	if err != nil {
		return nil, err
	}
	return exec.Command(initdb, "--pgdata", s.data(), "--username", userName, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"), nil
}

func servePostgres(s *Server) (*exec.Cmd, error) {
	program, err := postgresProgram("postgres")
	if err != nil {
		return nil, err
	}
	always := [][2]string{
		{"listen_addresses", "127.0.0.1"}, {"port", strconv.Itoa(s.port)}, {"unix_socket_directories", s.dir},
		{"max_connections", "200"},
		{"dynamic_shared_memory_type", "mmap"}, // in its folder: nothing is left in the system after a kill
	}
	quick := [][2]string{{"fsync", "off"}, {"shared_buffers", "16MB"}}
	cmd := exec.Command(program, "-D", s.data())
	for _, set := range s.settings.all(always, quick) {
		cmd.Args = append(cmd.Args, "-c", set[0]+"="+set[1])
	}
	return cmd, nil
}

// postgresProgram finds one of the newest PostgreSQL that is installed. Debian keeps
// those out of the PATH, one folder for each version.
func postgresProgram(name string) (string, error) {
	newest, found := 0, ""
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	for _, file := range dirs {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		if err == nil && version > newest {
			newest, found = version, file
		}
	}
	if found != "" {
		return found, nil
	}
	file, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no PostgreSQL (no %s in /usr/lib/postgresql/*/bin or the PATH): run \"make tools\"",
			name)
	}
	return file, nil
}
