package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// The servers that are this program are the test's program too.
func TestMain(m *testing.M) {
	if !serve() {
		os.Exit(m.Run())
	}
}

// tiny is a plan whose figures say nothing.
func tiny(t *testing.T, peers string) *plan {
	return &plan{
		peers: regexp.MustCompile(peers), rounds: 2, dir: t.TempDir(), log: t.Output(), progress: func(string) {},
		timing: timing{Warm: 10 * time.Millisecond, Run: 50 * time.Millisecond, Keep: 100 * time.Microsecond, Batch: 32,
			Bench: time.Millisecond},
		sizes: sizes{60, 61, 62, 63}, claims: 1000,
	}
}

// shortDir is a folder with a short name: that of a socket, which a node of a cluster has in its folder, may
// not be long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// checkRun runs p, and sees that all rows have what they should have and that
// nothing is left behind.
func checkRun(t *testing.T, p *plan) *result {
	t.Helper()
	r, err := p.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range r.failures() {
		t.Error(failure)
	}
	// On a busy machine one short round may see nothing done, but not all of them.
	done := map[string]int64{}
	for _, table := range r.Tables {
		if len(table.Rows) == 0 {
			t.Errorf("%s: nobody was measured", table.name())
		}
		for _, row := range table.Rows {
			if len(row.Rounds) != p.rounds {
				t.Errorf("%s, %s: %d rounds, want %d", table.name(), row.Peer, len(row.Rounds), p.rounds)
			}
			for _, s := range row.Rounds {
				if s.Elapsed < p.timing.Run || s.ClientCPU <= 0 {
					t.Errorf("%s, %s: a round of %+v", table.name(), row.Peer, s)
				}
				done[fmt.Sprintf("%s of %s", table.Kind, row.Peer)] += s.Pairs
			}
		}
	}
	for what, pairs := range done {
		if pairs == 0 {
			t.Errorf("%s: not a single pair in all rounds", what)
		}
	}
	checkNothingIsLeft(t, p)
	return r
}

func checkNothingIsLeft(t *testing.T, p *plan) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %q, %v", left, err)
	}
	if children := childProcesses(t); len(children) > 0 {
		t.Errorf("processes are left behind: %q", children)
	}
}

// childProcesses are the processes that this one has started and that live.
func childProcesses(t *testing.T) []string {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // what is before may hold anything
		if strings.HasPrefix(rest[2:], fmt.Sprintf("%d ", os.Getpid())) {
			children = append(children, string(text[:strings.IndexByte(string(text), ')')+1]))
		}
	}
	return children
}

func TestOwnServersAndPackages(t *testing.T) {
	p := tiny(t, "^limit|^memlock$|^x/sync|^lk")
	p.dir = shortDir(t)
	r := checkRun(t, p)
	checkMemory(t, r, 4)
	if len(r.Tables) != len(workloads) {
		t.Errorf("%d tables, want %d", len(r.Tables), len(workloads))
	}
	for _, table := range r.Tables {
		reference := table.row(table.Reference)
		if reference == nil {
			t.Fatalf("%s: the reference %s is missing", table.name(), table.Reference)
		}
		m := mainMetrics(table.Kind)[0]
		if f, ok := reference.Figures[m]; ok && f.Median > 0 && f.Ratio == nil ||
			f.Ratio != nil && (f.Ratio.Median != 1 || f.Ratio.Min != 1) {
			t.Errorf("%s: %s beside itself: %+v", table.name(), m, f)
		}
		for _, s := range reference.Rounds {
			if s.Pairs > 0 && s.ServerCPU <= 0 {
				t.Errorf("%s: the server of %s used no time: %+v", table.name(), table.Reference, s)
			}
		}
	}
}

// needServers is the variable that makes missing servers a failure of the tests.
const needServers = "LOCKKEEPER_BENCH_NEEDS_SERVERS"

func TestServersOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd and Redis take a minute")
	}
	p := tiny(t, "^redis|^etcd|^redsync|^rueidislock|^bsm|^redlock")
	p.must = os.Getenv(needServers) != ""
	p.timing.Run = 300 * time.Millisecond // etcd is not that fast
	if err := redisMissing(); err != nil && !p.must {
		t.Skipf("%v (with %s=1 that is a failure)", err, needServers)
	}
	checkMemory(t, checkRun(t, p), 1)
}

// Databases are measured as all others are. They need a folder that other users
// get to, which those of tests are not.
func TestDatabases(t *testing.T) {
	if testing.Short() {
		t.Skip("databases take a minute")
	}
	for _, lacks := range []func() error{(&postgres{}).missing, (&mariaDB{}).missing} {
		if err := lacks(); err != nil && os.Getenv(needServers) != "" {
			t.Fatal(err)
		} else if err != nil {
			t.Skipf("%v (with %s=1 that is a failure)", err, needServers)
		}
	}
	p := tiny(t, "^postgres|^mariadb|^sqllock")
	p.workloads = regexp.MustCompile("paths, 16|hand-off")
	p.timing.Run = 300 * time.Millisecond
	p.dir = shortDir(t)
	if err := os.Chmod(p.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, table := range checkRun(t, p).Tables {
		for _, row := range table.Rows {
			for _, s := range row.Rounds {
				// Postgres works in children of the process that was started.
				if s.Pairs > 0 && perPair(s.ServerCPU, s.Pairs) < 5 {
					t.Errorf("%s, %s: the server used next to no time: %+v", table.name(), row.Peer, s)
				}
			}
		}
	}
}

// checkMemory sees that so many occupations were measured, and nothing absurd.
func checkMemory(t *testing.T, r *result, occupations int) {
	t.Helper()
	if len(r.Memory) != occupations {
		t.Errorf("%d occupations, want %d: %v", len(r.Memory), occupations, r.Memory)
	}
	text := len(countedLabel(0).As) + len(countedLabel(0).Note)
	for _, o := range r.Memory {
		if o.Bytes < float64(text) || o.Bytes > 20_000 {
			t.Errorf("%s: %s: %.0f bytes each, of which the label alone has %d", o.Peer, o.What, o.Bytes, text)
		}
	}
}

// A peer that is not installed is told of, or a failure, as asked for.
func TestMissingServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := tiny(t, "redis, rueidis")
	p.workloads = regexp.MustCompile("paths, 1 client$")
	r := checkRun(t, p)
	if !strings.Contains(r.Missing[rueidisName], "-setup") {
		t.Errorf("what is missing is told as %q", r.Missing)
	}
	p.must = true
	if _, err := p.run(t.Context()); err == nil || !strings.Contains(err.Error(), "-setup") {
		t.Errorf("a missing server that must be there: %v", err)
	}
	checkNothingIsLeft(t, p)
}

// ^C ends a run soon, and its servers.
func TestInterruptedRun(t *testing.T) {
	p := tiny(t, "^limit")
	p.timing.Run = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	p.progress = func(line string) {
		if strings.Contains(line, "round") {
			cancel()
		}
	}
	if _, err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted run ends with %v", err)
	}
	checkNothingIsLeft(t, p)
}

// A server that dies is a failure of its peer in that workload, not a figure.
func TestServerThatDies(t *testing.T) {
	p := &relayPeer{sizes: sizes{60, 60, 60, 60}}
	if err := p.start(t.Context(), place{t.TempDir(), t.Output()}); err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	over := time.AfterFunc(100*time.Millisecond, func() { p.server().signal(syscall.SIGKILL) })
	defer over.Stop()
	w := workload{contended, 8, relayName}
	if s, err := measure(t.Context(), w, p, timing{Run: time.Minute}); err == nil {
		t.Errorf("a server that was killed gives %+v", s)
	}
}

// lax lets everybody in.
type lax struct{ noServer }

func (lax) about() about { return about{name: "lax", kinds: []kind{contended}} }
func (lax) open(context.Context, int) (clients, error) {
	return &lockers{each: []load.Locker{lax{}, lax{}, lax{}, lax{}}}, nil
}
func (lax) Acquire(context.Context, string) error { return nil }
func (lax) Release(context.Context, string) error { return nil }

func TestTwoHoldersAreSeen(t *testing.T) {
	w := workload{handoff, 4, "lax"}
	_, err := measure(t.Context(), w, lax{}, timing{Run: 10 * time.Second, Keep: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "two hold") {
		t.Errorf("a peer that lets everybody in: %v", err)
	}
}

// inSomeWindow measures a workload until good accepts what a window has, in five windows at most. A
// share of fewer than 400 pairs says nothing, so windows double from 100 ms until one has as many. The
// counts of a window are not taken in one moment, so one in which the machine stands still may be odd.
func inSomeWindow(t *testing.T, w workload, p peer, good func(sample) bool) {
	t.Helper()
	window := 100 * time.Millisecond
	for try := 1; ; {
		s, err := measure(t.Context(), w, p, timing{Warm: 10 * time.Millisecond, Run: window})
		switch {
		case err != nil:
			t.Fatalf("%s: %v", p.about().name, err)
		case s.Pairs >= 400 && good(s):
			return
		case s.Pairs >= 400 && try == 5:
			t.Fatalf("%s: %+v", p.about().name, s)
		case s.Pairs >= 400:
			try++
		case window > 10*time.Second:
			t.Fatalf("%s: %d pairs in %s", p.about().name, s.Pairs, window)
		default:
			window *= 2
		}
	}
}

// The limits of one contended path let everybody in, in turn.
func TestRelaysAreFair(t *testing.T) {
	for _, p := range []peer{&relayPeer{sizes: sizes{60, 60, 60, 60}}} {
		if err := p.start(t.Context(), place{t.TempDir(), t.Output()}); err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		inSomeWindow(t, workload{contended, 8, relayName}, p, func(s sample) bool {
			return s.Jain >= 0.95 && s.Handoffs > 0 && s.P50 > 0 && s.P99 >= s.P50
		})
	}
}

// The relay tells a client that it must wait, and grants the token after that.
func TestRelayTellsToWait(t *testing.T) {
	p := &relayPeer{sizes: sizes{60, 61, 62, 63}}
	if err := p.start(t.Context(), place{t.TempDir(), t.Output()}); err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	opened, err := p.open(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	holder, waiter := opened.locker(0).(*relayClient), opened.locker(1).(*relayClient)
	if err := holder.Acquire(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := waiter.send(60, 61, waiter.token); err != nil {
		t.Fatal(err)
	}
	if number, err := waiter.receive(61); number != waiter.token|mustWait || err != nil {
		t.Fatalf("the answer to a client that must wait is %#x, %v", number, err)
	}
	if err := holder.Release(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if number, err := waiter.receive(61); number != waiter.token || err != nil {
		t.Errorf("after the release a waiter gets %#x, %v", number, err)
	}
}

// Within one process holders yield, so that the path goes to another one each time.
func TestPairsWithinTheProcessAreHandOffs(t *testing.T) {
	inSomeWindow(t, workload{contended, 8, "x/sync"}, &semaphorePeer{}, func(s sample) bool {
		return int64(s.Handoffs) >= s.Pairs*9/10
	})
}

// Processor time is told of the right process: of one that waits there is none,
// of this one there is.
func TestProcessTime(t *testing.T) {
	p := &echoPeer{sizes: sizes{60, 60, 60, 60}}
	if err := p.start(t.Context(), place{t.TempDir(), t.Output()}); err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	at := func(f func() (time.Duration, error)) time.Duration {
		d, err := f()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	server, own, all := at(p.server().cpu), at(ownCPU), at(busy)
	for at(ownCPU) < own+100*time.Millisecond {
	}
	if idle := at(p.server().cpu) - server; idle > 50*time.Millisecond {
		t.Errorf("a server that nobody asks used %s while this process used 100ms", idle)
	}
	if used := at(busy) - all; used < 50*time.Millisecond {
		t.Errorf("all processes used %s while this one used 100ms", used)
	}
	p.stop()
	if d, err := p.server().cpu(); err == nil {
		t.Errorf("a server that has ended used %s", d)
	}
}

// The server of etcd that is measured is the one that its module fixes, and as
// old as the client.
func TestOneVersionOfEtcd(t *testing.T) {
	for file, module := range map[string]string{"etcd/go.mod": etcdPackage, "go.mod": "go.etcd.io/etcd/client/v3"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := module + " " + etcdVersion; !strings.Contains(string(text), want) {
			t.Errorf("%s does not require %s", file, want)
		}
	}
}
