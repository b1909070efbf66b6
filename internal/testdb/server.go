package testdb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startBound = time.Minute // for a server to be ready, with what it recovers
	stopBound  = time.Minute // for a server to end on request

	// userName is who everybody is in these servers: the owner of all, with no password.
	userName = "tester"

	// Ports are taken below those that the system gives to connections, so that a
	// server that was stopped finds its own free again.
	firstPort, ports = 15000, 15000
)

// A Server is a private instance of a database, or of a pooler before one. Any goroutine may call
// its methods at any time; calls that start and stop it are serialized.
type Server struct {
	program  *program
	dir      string // contains everything of the server, and nothing else
	port     int
	settings settings
	behind   *Server // the database, if this is a pooler

	mu      sync.Mutex
	process *process // nil when it does not run
	frozen  bool
	made    int // databases made by Database
}

// program is what differs between the kinds of servers.
type program struct {
	name   string
	scheme string // of its URLs
	query  string // at the end of its URLs
	ready  string // what it writes to its log when it accepts connections

	fast      syscall.Signal // ends it in good order, not waiting for clients
	immediate syscall.Signal // ends it at once, if nobody needs the data

	// prepare returns the command that makes the data, if there is one to run.
	prepare func(s *Server) (*exec.Cmd, error)
	// serve returns the command that serves it.
	serve func(s *Server) (*exec.Cmd, error)
	// killed cleans up in the system after all processes were killed.
	killed func(s *Server)

	create, drop string // the statements for a database, with %s for its name
}

// Addr is where the server listens, as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the TCP port of 127.0.0.1 where the server listens. It stays the same when the server is
// stopped and started.
func (s *Server) Port() int { return s.port }

// PID is the number of the server's process; of PostgreSQL, of the process that starts the others.
// 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.pid
}

// URL is the URL of a database of the server, which need not exist. It needs no password, and the
// user may do everything.
func (s *Server) URL(database string) string { return s.urlAt(s.Addr(), database) }

func (s *Server) urlAt(addr, database string) string {
	if s.program == redis {
		return s.program.scheme + "://" + addr + "/" + database
	}
	return s.program.scheme + "://" + userName + "@" + addr + "/" + database + s.program.query
}

// Start starts a server that was stopped or killed, on its port and its data, and returns when it
// accepts connections after its recovery. It is an error if the server runs.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start()
}

func (s *Server) start() error {
	if s.process != nil {
		return fmt.Errorf("%s runs already: stop it first", s)
	}
	cmd, err := s.program.serve(s)
	if err != nil {
		return err
	}
	log := newLog(s.program.ready)
	p, err := launch(cmd, s.data(), log)
	if err != nil {
		return fmt.Errorf("start %s: %w", s, err)
	}
	bound := time.NewTimer(startBound)
	defer bound.Stop()
	select {
	case <-log.ready:
		s.process, s.frozen = p, false
		return nil
	case <-p.gone:
		return fmt.Errorf("%s ended (%v) when it was started; its log:\n%s", s, p.err, log)
	case <-bound.C:
		return errors.Join(fmt.Errorf("%s does not take connections %v after its start; its log:\n%s", s, startBound, log),
			p.kill())
	}
}

// Stop ends the server in good order, and closes the connections of its clients. Commits stay. It
// does nothing if the server does not run.
func (s *Server) Stop() error { return s.end(s.program.fast) }

// Kill ends all processes of the server at one instant, by SIGKILL: after that only the kernel
// answers, writes or closes anything. What the database has committed is there after Start, with
// Durable or without, since the system did not crash. It does nothing if the server does not run.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	var err error
	if signal == syscall.SIGKILL {
		err = s.process.kill()
	} else {
		err = s.process.stop(signal)
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", s, err)
	}
	if s.program.killed != nil {
		s.program.killed(s)
	}
	s.process, s.frozen = nil, false
	return nil
}

// Freeze stops all processes of the server, by SIGSTOP, and returns when they are stopped. Its
// connections stay open, and the kernel still accepts data and new connections, but the server does
// not answer.
func (s *Server) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return fmt.Errorf("%s does not run: it can't be frozen", s)
	}
	if err := s.process.freeze(); err != nil {
		return fmt.Errorf("freeze %s: %w", s, err)
	}
	s.frozen = true
	return nil
}

// Thaw continues a frozen server. It does nothing if the server is not frozen.
func (s *Server) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || !s.frozen {
		return nil
	}
	if err := s.process.thaw(); err != nil {
		return fmt.Errorf("thaw %s: %w", s, err)
	}
	s.frozen = false
	return nil
}

// String names the server for messages.
func (s *Server) String() string { return fmt.Sprintf("%s at %s", s.program.name, s.Addr()) }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// open starts a server in a folder, and makes its data there if there is none.
func open(p *program, dir string, behind *Server, options []Option) (*Server, error) {
	s := &Server{program: p, dir: dir, behind: behind}
	for _, o := range options {
		o(&s.settings)
	}
	var err error
	if s.dir, err = ownFolder(dir); err != nil {
		return nil, err
	}
	if err := s.makeData(); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		err = s.Start()
		// Another process may have taken the port since it was found free.
		if err == nil || tries == 3 || !strings.Contains(err.Error(), "already in use") {
			return s, err
		}
	}
}

func (s *Server) makeData() error {
	if _, err := os.Stat(s.data()); err == nil {
		return nil
	}
	cmd, err := s.program.prepare(s)
	if err != nil || cmd == nil {
		return err
	}
	log := newLog("")
	p, err := launch(cmd, s.dir, log)
	if err != nil {
		return fmt.Errorf("make the data of %s: %w", s.program.name, err)
	}
	if err = p.await(startBound); err != nil {
		err = errors.Join(err, p.kill())
	} else {
		err = p.err
	}
	if err != nil {
		os.RemoveAll(s.data()) // otherwise the next start would use it as complete
		return fmt.Errorf("make the data of %s in %s: %w%s; it said:\n%s", s.program.name, s.dir, err, whoRuns(), log)
	}
	return nil
}

// openFor starts a server in a temporary folder that ends with the test.
func openFor(t testing.TB, p *program, behind *Server, options []Option) *Server {
	t.Helper()
	s, discard, err := openTemporary(p, behind, options)
	if err != nil {
		cannot(t, err)
	}
	t.Cleanup(func() {
		if err := discard(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return s
}

// openTemporary starts a server in a temporary folder. discard ends it and removes
// the folder.
func openTemporary(p *program, behind *Server, options []Option) (s *Server, discard func() error, err error) {
	// Not in t.TempDir: nobody but its owner gets into that, and it may be too
	// long for a socket's name.
	dir, err := os.MkdirTemp("", "testdb")
	if err != nil {
		return nil, nil, err
	}
	if s, err = open(p, dir, behind, options); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, func() error { return errors.Join(s.end(p.immediate), os.RemoveAll(dir)) }, nil
}

// findProgram finds a program of a server.
func findProgram(program, server string) (string, error) {
	for _, file := range []string{program, "/usr/sbin/" + program} { // which may not be in the PATH
		if file, err := exec.LookPath(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("there is no %s (no %s in the PATH or /usr/sbin): run \"make tools\"", server, program)
}

func cannot(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errElsewhere) {
		t.Skip(err)
	}
	t.Fatal(err)
}

var errElsewhere = errors.New("databases are started for tests on Linux alone")

func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(ports)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 from %d to %d: %w", firstPort, firstPort+ports-1, err)
}
