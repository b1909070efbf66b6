package testdb

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared are the servers of this test binary.
var shared struct {
	mu       sync.Mutex
	runs     bool // Run was called, which ends them
	servers  map[*program]*Server
	discards []func() error
}

// Run runs the tests of a binary, and then ends the servers that they share. It
// returns the code to exit with. TestMain of each package that uses SharedPostgres,
// SharedMariaDB or SharedRedis calls it.
func Run(m *testing.M) int {
	shared.mu.Lock()
	shared.runs = true
	shared.mu.Unlock()
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, discard := range shared.discards {
		if err := discard(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// SharedPostgres is the PostgreSQL of this test binary. It is started when the first
// test asks for it. Tests share it, so they take a database each, and leave it
// running and as it is.
func SharedPostgres(t testing.TB) *Server {
	t.Helper()
	return share(t, postgres)
}

// SharedMariaDB is the MariaDB of this test binary, as SharedPostgres.
func SharedMariaDB(t testing.TB) *Server {
	t.Helper()
	return share(t, mariadb)
}

func share(t testing.TB, p *program) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.runs {
		t.Fatal("nobody would end a shared server: this package needs a TestMain that calls testdb.Run")
	}
	if s := shared.servers[p]; s != nil {
		return s
	}
	s, discard, err := openTemporary(p, nil, nil)
	if err != nil {
		cannot(t, err)
	}
	if shared.servers == nil {
		shared.servers = map[*program]*Server{}
	}
	shared.servers[p] = s
	shared.discards = append(shared.discards, discard)
	return s
}
