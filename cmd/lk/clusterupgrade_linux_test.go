package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// An upgraded is a cluster of three real servers on this machine, whose program changes.
type upgraded struct {
	*testing.T
	dir   string
	nodes [3]*upgradedNode
}

type upgradedNode struct {
	*upgraded
	name, address string
	cmd           *exec.Cmd
	ended         chan struct{} // closed when the process has ended
}

// buildNext builds lk with one more version of the rules, and returns the program.
func buildNext(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "lk-next")
	if out, err := exec.Command("go", "build", "-tags", "nextrules", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// newUpgraded makes a cluster whose three voters run that program.
func newUpgraded(t *testing.T, program string) *upgraded {
	t.Helper()
	u := &upgraded{T: t, dir: t.TempDir()}
	for i := range u.nodes {
		n := &upgradedNode{
			upgraded: u,
			name:     fmt.Sprint("node", i+1),
			address:  fmt.Sprintf("127.251.%d.%d", os.Getpid()%250+1, i+1), // of this process alone
		}
		u.nodes[i] = n
		t.Cleanup(func() {
			n.kill()
			if t.Failed() {
				t.Logf("%s:\n%s", n.name, n.log())
			}
		})
		if i == 0 {
			n.lk("cluster", "init", "--name", n.name, "--peers", n.address)
			n.start(program)
			continue
		}
		token := n.data() + ".token"
		soon(t, "a token", func() bool {
			return exec.Command("lk", "cluster", "token", "--out", token, "--data", u.nodes[0].data()).Run() == nil
		})
		n.start(program, "--join", token, "--name", n.name)
	}
	soon(t, "all nodes vote", func() bool { return u.whole(u.nodes[0]) })
	return u
}

func (n *upgradedNode) data() string { return filepath.Join(n.dir, n.name) }

// lk runs a command with the node's folder, and returns its output.
func (n *upgradedNode) lk(args ...string) string {
	n.Helper()
	out, err := exec.Command("lk", append(args, "--data", n.data())...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		n.Fatalf("lk %s: %v: %s", strings.Join(args, " "), err, failed.Stderr)
	} else if err != nil {
		n.Fatal(err)
	}
	return string(out)
}

// start starts the server with that program.
func (n *upgradedNode) start(program string, flags ...string) {
	n.Helper()
	n.cmd = exec.Command(program, append([]string{"serve", "--data", n.data(), "--listen", n.address + ":7420",
		"--peers", n.address, "--http", "off", "--insecure", "--log-format", "text"}, flags...)...)
	log, err := os.OpenFile(n.data()+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	n.cmd.Stderr = log
	n.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(n.cmd, n.ended)
}

// terminate ends the process as a service manager does.
func (n *upgradedNode) terminate() {
	n.Helper()
	_ = n.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.Fatalf("%s has not ended within %s:\n%s", n.name, patience, n.log())
	}
}

func (n *upgradedNode) kill() {
	if n.cmd != nil && n.ended != nil {
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

func (n *upgradedNode) log() string {
	text, err := os.ReadFile(n.data() + ".log")
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// status returns the cluster as that node knows it; false if its server does not answer.
func (n *upgradedNode) status() (s lockkeeper.ClusterStatus, ok bool) {
	text, err := exec.Command("lk", "cluster", "ls", "--json", "--data", n.data()).Output()
	return s, err == nil && json.Unmarshal(text, &s) == nil
}

// whole reports whether the node is ready and reaches three voters.
func (u *upgraded) whole(n *upgradedNode) bool {
	s, ok := n.status()
	return ok && s.State == lockkeeper.NodeReady && s.Live == len(u.nodes)
}

// rules fails the test unless all servers that answer run under that version of the rules.
func (u *upgraded) rules(want uint64, when string) {
	u.Helper()
	for _, n := range u.nodes {
		if s, ok := n.status(); ok && s.State == lockkeeper.NodeReady && s.Rules != want {
			u.Errorf("%s: %s runs under rules %d, want %d", when, n.name, s.Rules, want)
		}
	}
}

// open opens the cluster for a client that begins at the node with that index.
func (u *upgraded) open(at int) lockkeeper.Engine {
	u.Helper()
	var all []string
	for i := range u.nodes {
		all = append(all, u.nodes[(at+i)%len(u.nodes)].address+":7420")
	}
	e, err := openSoon(u.Context(), "lk://"+strings.Join(all, ","))
	if err != nil {
		u.Fatal(err)
	}
	return e
}

// client returns a client whose leases last longer than a restart on a busy machine.
func (u *upgraded) client(at int) *lockkeeper.Client {
	u.Helper()
	c := lockkeeper.New(u.open(at), lockkeeper.SessionTTL(time.Minute))
	u.Cleanup(func() { _ = c.Close() })
	return c
}

// Three servers get a program with later rules, one after the other, under load. The cluster goes on to
// these rules when the last server has them and not before, and loses nothing: holds, fences and
// positions stay. A server with the former program then stops, and says why.
func TestClusterOfRealServersIsUpgraded(t *testing.T) {
	testmode.NeedLong(t, "it builds a program; TestRollingUpgradeLosesNoLock in internal/replica is the short form")
	t.Parallel()
	next := buildNext(t)
	u := newUpgraded(t, "lk")
	before, _ := u.nodes[0].status()
	load := stress.New(testmode.Seed(t), history.RulesOf(u.client(0).Guarantees()))
	for i := range u.nodes {
		load.Add("client", u.open(i), 2, lockkeeper.SessionTTL(time.Minute))
	}
	hold, err := u.client(1).Lock(t.Context(), "keep")
	if err != nil {
		t.Fatal(err)
	}
	fence := hold.Fence()
	waiter := u.client(2)
	got := make(chan *lockkeeper.Hold, 1)
	go func() {
		defer close(got)
		h, err := waiter.Lock(t.Context(), "keep")
		if err != nil {
			t.Error(err)
			return
		}
		got <- h
	}()

	for i, n := range u.nodes {
		granted := load.Granted.Load()
		soon(t, "the load goes on", func() bool { return load.Granted.Load() > granted+20 })
		u.rules(before.Rules, n.name+" has the former program")
		n.terminate()
		u.rules(before.Rules, n.name+" is down")
		n.start(next)
		if i < len(u.nodes)-1 {
			soon(t, n.name+" is back", func() bool { return u.whole(n) })
		}
	}
	for _, n := range u.nodes {
		soon(t, "later rules at "+n.name, func() bool {
			s, _ := n.status()
			return s.Rules == before.Rules+1 && u.whole(n)
		})
	}
	granted := load.Granted.Load()
	soon(t, "the load goes on under the later rules", func() bool { return load.Granted.Load() > granted+100 })

	u.checkLoad(load)
	u.checkHold(hold, fence, got)
	last := u.nodes[2]
	last.terminate()
	last.start("lk")
	soon(t, "the former program stops", func() bool {
		s, _ := last.status()
		return s.State == lockkeeper.NodeStopped && strings.Contains(s.Failed, "run a later version")
	})
	last.terminate()
	last.start(next)
	soon(t, "the later program is back", func() bool { return u.whole(last) })
}

// checkLoad ends the load: its history has no fault, nothing was lost, and nothing stays held.
func (u *upgraded) checkLoad(load *stress.Load) {
	u.Helper()
	load.Pause()
	u.Log(load)
	for _, wrong := range load.Faults() {
		u.Error(wrong)
	}
	if n := load.Lost.Load(); n > 0 {
		u.Errorf("%d holds were lost", n)
	}
	e := u.open(0)
	defer e.Close()
	if err := stress.CheckFree(e, patience); err != nil {
		u.Error(err)
	}
	if err := load.Close(); err != nil {
		u.Error(err)
	}
}

// checkHold checks that the hold has the fence that it had, and that its release lets the waiter go on
// with a later one.
func (u *upgraded) checkHold(hold *lockkeeper.Hold, fence uint64, waiter <-chan *lockkeeper.Hold) {
	u.Helper()
	select {
	case <-waiter:
		u.Fatal("the lock has two holders")
	default:
	}
	if err := hold.Err(); err != nil || hold.Fence() != fence {
		u.Errorf("the hold has fence %d, want %d; its error is %v", hold.Fence(), fence, err)
	}
	if err := hold.Release(u.Context()); err != nil {
		u.Error(err)
	}
	select {
	case h := <-waiter:
		if h != nil && h.Fence() <= fence {
			u.Errorf("fence %d follows fence %d", h.Fence(), fence)
		}
	case <-time.After(patience):
		u.Errorf("the waiter has not got the lock %s after its release", patience)
	}
}
