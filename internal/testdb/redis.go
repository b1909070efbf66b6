package testdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

var redis = &program{
	name: "Redis", scheme: "redis",
	ready: "Ready to accept connections",
	fast:  syscall.SIGTERM, immediate: syscall.SIGKILL,
	prepare: func(s *Server) (*exec.Cmd, error) { return nil, makeRedisData(s) },
	serve:   serveRedis,
}

// Redis starts a redis-server for one test. It ends with the test, and its data with it. Settings,
// by Set, are those of its command line: Set("requirepass", "secret").
//
// Without Durable it writes nothing to disk, so that it starts again without its data. With
// Durable it has appendonly yes and appendfsync always, and starts again with everything that it
// answered. Wipe removes the data of a stopped one.
func Redis(t testing.TB, options ...Option) *Server {
	t.Helper()
	return openFor(t, redis, nil, options)
}

// SharedRedis is the Redis of this test binary, as SharedPostgres. Tests share its databases 0 to
// 15 too: each uses keys with a prefix of its own.
func SharedRedis(t testing.TB) *Server {
	t.Helper()
	return share(t, redis)
}

// StartRedis starts a redis-server with its data in a folder, as StartPostgres does.
func StartRedis(dir string, options ...Option) (*Server, error) {
	return open(redis, dir, nil, options)
}

// TLS has Redis speak TLS alone, with this certificate and key, as PEM. If roots is not empty, a
// client must have a certificate that they signed. The socket stays without TLS.
func TLS(certificate, key, roots []byte) Option {
	return func(s *settings) { s.tls = &tlsFiles{certificate, key, roots} }
}

type tlsFiles struct{ certificate, key, roots []byte }

// Socket is the file of the socket where Redis listens besides its port.
func (s *Server) Socket() string { return filepath.Join(s.dir, "redis.sock") }

// Wipe removes all data of a Redis that does not run, so that it starts empty.
func (s *Server) Wipe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.program != redis || s.process != nil {
		return fmt.Errorf("%s keeps its data: only a stopped Redis is wiped", s)
	}
	return errors.Join(os.RemoveAll(s.data()), makeRedisData(s))
}

func makeRedisData(s *Server) error {
	_, err := ownFolder(s.data())
	return err
}

func serveRedis(s *Server) (*exec.Cmd, error) {
	program, err := findProgram("redis-server", "Redis")
	if err != nil {
		return nil, err
	}
	always := [][2]string{
		{"bind", "127.0.0.1"}, {"port", strconv.Itoa(s.port)}, {"unixsocket", s.Socket()},
		{"dir", s.data()}, {"daemonize", "no"}, {"save", ""}, {"appendfsync", "always"}, {"appendonly", "yes"},
	}
	if files := s.settings.tls; files != nil {
		secure, err := s.writeTLS(files)
		if err != nil {
			return nil, err
		}
		always = append(always, secure...)
	}
	cmd := exec.Command(program)
	for _, set := range s.settings.all(always, [][2]string{{"appendonly", "no"}}) {
		cmd.Args = append(cmd.Args, "--"+set[0], set[1])
	}
	return cmd, nil
}

// writeTLS writes the files of TLS where the server can read them, and returns its settings.
func (s *Server) writeTLS(files *tlsFiles) ([][2]string, error) {
	port := strconv.Itoa(s.port)
	secure := [][2]string{{"port", "0"}, {"tls-port", port}, {"tls-auth-clients", "no"}}
	for _, f := range []struct {
		setting string
		text    []byte
	}{{"tls-cert-file", files.certificate}, {"tls-key-file", files.key}, {"tls-ca-cert-file", files.roots}} {
		if len(f.text) == 0 {
			continue
		}
		file := filepath.Join(s.dir, f.setting)
		// Only the server's user and root get into the folder.
		if err := os.WriteFile(file, f.text, 0o644); err != nil {
			return nil, err
		}
		secure = append(secure, [2]string{f.setting, file})
	}
	if len(files.roots) > 0 {
		secure = append(secure, [2]string{"tls-auth-clients", "yes"})
	}
	return secure, nil
}
