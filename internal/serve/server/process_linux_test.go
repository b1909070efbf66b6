package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// parts are the main functions of other processes of the tests.
var parts = map[string]func(args []string) error{"serve": playServe}

func TestMain(m *testing.M) {
	roles.Play(parts)
	os.Exit(testdb.Run(m))
}

// patience bounds waits that end soon. It is a safety net.
const patience = 30 * time.Second

// engines are those that a server process may serve.
var engines = map[string]func(ctx context.Context, dir string) (lockkeeper.Engine, error){
	"mem": func(context.Context, string) (lockkeeper.Engine, error) { return memlock.New(), nil },
}

// playServe serves an engine until it is killed, or its standard input ends.
func playServe(args []string) error {
	address, kind, dir := args[0], args[1], args[2]
	e, err := engines[kind](context.Background(), dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("serving", l.Addr())
	s := server.New(e, server.Options{})
	go func() {
		commands := bufio.NewScanner(os.Stdin)
		for commands.Scan() {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			fmt.Println("memory", m.HeapAlloc+m.StackInuse, m.Sys-m.HeapReleased, runtime.NumGoroutine())
		}
		os.Exit(0)
	}()
	return s.Serve(l)
}

// serving is a server in a process of its own.
type serving struct {
	*roles.Process
	t       testing.TB
	address string
}

func serve(t testing.TB, address, kind, dir string) *serving {
	t.Helper()
	p := roles.Start(t, "serve", address, kind, dir)
	return &serving{p, t, p.Read("serving")}
}

// memory returns the server's memory use.
type memory struct {
	live, taken uint64 // bytes in use, bytes taken from the system
	goroutines  int
}

func (s *serving) memory() (m memory) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.In, "memory"); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Sscan(s.Read("memory"), &m.live, &m.taken, &m.goroutines); err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (m memory) String() string {
	return fmt.Sprintf("%.1f MB live, %.1f MB taken, %d goroutines", float64(m.live)/1e6, float64(m.taken)/1e6,
		m.goroutines)
}
