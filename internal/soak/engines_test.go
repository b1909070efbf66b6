package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// A station is one engine of a soak: the process that loads it, and its services.
type station struct {
	driving
	Part
	process  *roles.Process
	services []*service
	last     paused
	faults   []string
}

// A service is a server of an engine.
type service struct {
	Part
	take    func() (Sample, error)
	process *roles.Process // nil if it is not one of this test
}

// stations starts all engines, with their services, or those that are named.
func stations(t *testing.T, seed uint64, interval time.Duration, names ...string) (all []*station) {
	type start struct {
		name string
		do   func(t *testing.T, s *station)
	}
	starts := []start{
		{"mem", func(_ *testing.T, s *station) { s.URL = "mem:" }},
		{"disk", startDisk},
		{"sqlite", startSQLite},
		{"postgres", startPostgres},
		{"mariadb", startMariaDB},
		{"redis", func(t *testing.T, s *station) { startRedis(t, s, 1) }},
		{"redis-of-three", func(t *testing.T, s *station) { startRedis(t, s, 3) }},
		{"server", startServer},
		{"cluster", startCluster},
	}
	for _, name := range names {
		if !slices.ContainsFunc(starts, func(s start) bool { return s.name == name }) {
			t.Fatalf("there is no engine %q", name)
		}
	}
	for i, start := range starts {
		if len(names) > 0 && !slices.Contains(names, start.name) {
			continue
		}
		s := &station{Part: Part{Name: start.name}, driving: driving{Seed: seed + uint64(i), Interval: interval}}
		start.do(t, s)
		s.drive(t)
		all = append(all, s)
	}
	return all
}

// drive starts the process that loads the engine.
func (s *station) drive(t *testing.T) {
	text, err := json.Marshal(s.driving)
	if err != nil {
		t.Fatal(err)
	}
	s.process = roles.Start(t, "drive", string(text))
}

func startDisk(t *testing.T, s *station) {
	s.Dir = t.TempDir()
	s.URL = "disk:" + s.Dir
	s.Tooth = Tooth{Operations: 50_000, Disk: 16} // a snapshot every 100,000 entries
}

func startSQLite(t *testing.T, s *station) {
	s.Dir = t.TempDir()
	s.URL, s.Reopen = "sqlite:"+filepath.Join(s.Dir, "locks.db"), true
}

func startPostgres(t *testing.T, s *station) {
	server := testdb.Postgres(t, testdb.Set("max_wal_size", "64MB"), testdb.Set("min_wal_size", "32MB"),
		testdb.Set("checkpoint_timeout", "30s"))
	s.startDatabase(t, server)
}

func startMariaDB(t *testing.T, s *station) {
	s.startDatabase(t, testdb.MariaDB(t))
}

// startDatabase makes a database of the server the engine. Rows of ended claims stay for a minute, for
// watchers, and tables grow by several megabytes at a time.
func (s *station) startDatabase(t *testing.T, server *testdb.Server) {
	s.URL, s.Reopen = server.Database(t), true
	s.serveBy(t, server)
	s.services[0].Tooth = Tooth{Operations: 5_000, Disk: 24}
}

func startRedis(t *testing.T, s *station, number int) {
	var addresses []string
	for range number {
		server := testdb.Redis(t)
		addresses = append(addresses, server.Addr())
		s.serveBy(t, server)
	}
	s.URL, s.Reopen, s.Votes = "redis://"+strings.Join(addresses, ","), true, number > 1
}

// serveBy adds a service of testdb.
func (s *station) serveBy(t *testing.T, server *testdb.Server) {
	pid := server.PID()
	dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd") // testdb has it run in the folder of its data
	if err != nil {
		t.Fatal(err)
	}
	s.serve(&service{take: func() (Sample, error) {
		p, err := Processes(pid)
		if err == nil {
			p.Disk, err = Folder(dir)
		}
		return p, err
	}})
}

func (s *station) serve(v *service) {
	v.Name = s.Name + ": server"
	if n := len(s.services); n > 0 {
		v.Name = fmt.Sprint(v.Name, " ", n+1)
	}
	s.services = append(s.services, v)
}

// serveByProcess adds a service in a process of this test, and returns its address for clients.
func (s *station) serveByProcess(t *testing.T, role string, args ...string) (v *service, address string) {
	v = &service{process: roles.Start(t, role, args...)}
	v.take = func() (p Sample, err error) { return p, ask(v.process, "sample", &p) }
	s.serve(v)
	if err := ask(v.process, "address", &address); err != nil {
		t.Fatal(err)
	}
	return v, address
}

func startServer(t *testing.T, s *station) {
	_, address := s.serveByProcess(t, "serve")
	s.URL, s.Reopen = "lk://"+address, true
}

func startCluster(t *testing.T, s *station) {
	dir := t.TempDir()
	first, address := s.serveByProcess(t, "node", filepath.Join(dir, "1"), "node1")
	addresses := []string{address}
	for i := 2; i <= 3; i++ {
		var token string
		if err := ask(first.process, "token", &token); err != nil {
			t.Fatal(err)
		}
		_, address = s.serveByProcess(t, "node", filepath.Join(dir, strconv.Itoa(i)), fmt.Sprint("node", i), token)
		addresses = append(addresses, address)
	}
	if err := ask(first.process, "await 3", new(any)); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.services {
		v.Tooth = Tooth{Operations: 10_000, Heap: 6, Disk: 8} // a snapshot every 20,000 entries
	}
	s.URL, s.Reopen = "lk://"+strings.Join(addresses, ","), true
}

// ask sends a process a command and reads its answer.
func ask(p *roles.Process, command string, answer any) error {
	p.Send(command)
	return answerOf(p, command, answer)
}

func answerOf(p *roles.Process, command string, answer any) error {
	word, rest := p.ReadLine()
	if word != "ok" {
		return fmt.Errorf("%s: the process answers %q: %s", command, word, rest)
	}
	return json.Unmarshal([]byte(rest), answer)
}
