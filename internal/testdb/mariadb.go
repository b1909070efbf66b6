package testdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

var mariadb = &program{
	name: "MariaDB", scheme: "mysql",
	ready: "ready for connections",
	fast:  syscall.SIGTERM, immediate: syscall.SIGKILL,
	prepare: prepareMariaDB, serve: serveMariaDB,
	create: "CREATE DATABASE %s", drop: "DROP DATABASE %s",
}

// MariaDB starts a MariaDB for one test. It ends with the test, and its data with it.
func MariaDB(t testing.TB, options ...Option) *Server {
	t.Helper()
	return openFor(t, mariadb, nil, options)
}

// StartMariaDB starts a MariaDB with its data in a folder, as StartPostgres does.
func StartMariaDB(dir string, options ...Option) (*Server, error) {
	return open(mariadb, dir, nil, options)
}

func prepareMariaDB(s *Server) (*exec.Cmd, error) {
	install, err := findProgram("mariadb-install-db", "MariaDB")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve")
	if !s.settings.durable {
		cmd.Args = append(cmd.Args, "--innodb-log-file-size=16M")
	}
	return cmd, os.WriteFile(s.usersFile(), []byte(mariadbUsers), 0o644)
}

func (s *Server) usersFile() string { return filepath.Join(s.dir, "users.sql") }

// mariadbUsers is run at each start, a statement a line.
const mariadbUsers = "CREATE USER IF NOT EXISTS " + userName + "@'%';\n" +
	"GRANT ALL ON *.* TO " + userName + "@'%' WITH GRANT OPTION;\n"

func serveMariaDB(s *Server) (*exec.Cmd, error) {
	program, err := findProgram("mariadbd", "MariaDB")
	if err != nil {
		return nil, err
	}
	always := [][2]string{
		{"bind-address", "127.0.0.1"}, {"port", strconv.Itoa(s.port)}, {"socket", filepath.Join(s.dir, "mysqld.sock")},
		{"pid-file", filepath.Join(s.dir, "mysqld.pid")}, {"tmpdir", s.dir}, {"init-file", s.usersFile()},
		{"skip-name-resolve", "1"}, {"character-set-server", "utf8mb4"}, {"max-connections", "200"},
	}
	quick := [][2]string{
		{"innodb-flush-log-at-trx-commit", "2"}, // to the system at each commit, so that Kill loses nothing
		{"innodb-doublewrite", "0"}, {"innodb-flush-method", "nosync"}, {"innodb-log-file-size", "16M"},
		{"innodb-buffer-pool-size", "32M"}, {"innodb-use-native-aio", "0"},
	}
	cmd := exec.Command(program, "--no-defaults", "--datadir="+s.data())
	for _, set := range s.settings.all(always, quick) {
		cmd.Args = append(cmd.Args, "--"+set[0]+"="+set[1])
	}
	return cmd, nil
}
