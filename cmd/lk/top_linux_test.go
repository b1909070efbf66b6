package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An operator at lk top sees the tree, filters it, reads why a path is not free, revokes a claim,
// freezes and thaws a path. When the server dies the state is marked as old; of the server that
// comes after it, nothing old is shown.
func TestTopAtTerminal(t *testing.T) {
	s := startScreen(t)
	server := startServer(t, t.TempDir(), "--engine", "mem:")
	t.Cleanup(func() { server.stop(t) })
	address := strings.TrimPrefix(server.url, "lk://")
	s.types("export LOCKKEEPER_URL="+server.url, "Enter")
	s.types("lk run -q --as ann --note nightly db/a -- sh -c 'touch held; await never' 2>ann.log &", "Enter")
	s.types("await held; lk run -q --as bob db/a -- sh -c 'touch bob; await never' 2>bob.log &", "Enter")
	s.types("clear; lk top", "Enter")
	s.shows(`^lk top ` + server.url + ` .*  1 held, 1 waiting\nengine mem, .*\n  PATH .*\n  db\n` +
		`>   a +held +ann +\S+ +exclusive  nightly\n +1st in line +bob +\S+ +exclusive  held by ann for `)
	s.types("/", "bo", "Enter")
	s.shows(`PATH.*\n  db\n>   a +1st in line +bob .*\n\s+filter bo; Esc: all`)
	s.types("w")
	s.shows(`ann holds exclusive db/a for .*, fence 1 \(nightly\)\nbob waits for .*: 1st in line, held by ann`)
	s.types("q", "Escape")
	s.shows(`db\n(>| ) +a +held +ann .*\n.*bob`)
	s.types("Home", "Down", "x")
	s.shows(`revoke ann at db/a; Esc: no; why\? _`)
	s.types("stuck", "Enter")
	s.shows(`a +held, asked to yield, \S+ left +ann .* by the operator|a +held +bob`)
	s.types("f")
	s.shows(`freeze db/a for: _`)
	s.types("30m", "Enter", "disks", "Enter")
	s.shows(`frozen, (30m|29m\d+s) left +\S+ .*disks`)
	s.tmux("resize-window", "-x", "40", "-y", "10")
	s.shows(`^lk top \S*~ .*\n(.*\n)+.*frozen`)
	s.tmux("resize-window", "-x", "100", "-y", "30")
	s.types("/", "disks", "Enter", "t")
	s.shows(`thaw db/a; Esc: no; why\? _`)
	s.types("Enter")
	s.shows(`nothing is held, and nobody waits here; Esc shows everything`)
	s.types("Escape")
	s.shows(`a +held.* (ann|bob) `)

	server.cmd.Process.Kill()
	<-server.ended
	s.shows(`OLD: as of \d\d:\d\d:\d\d, \S+ ago: .*can't be reached(.*\n)+.*a +held.* (ann|bob) `)
	s.types("x")
	s.shows(`this state is old: nothing can be done now`)
	server = startServer(t, t.TempDir(), "--engine", "mem:", "--listen", address)
	s.shows(`^lk top .*\n(engine mem, .*\n)?  PATH `)
	s.types("q")
	s.shows(`next: $`) // the screen of before
	s.types("echo code=$?", "Enter")
	s.shows(`code=0`)
}

// An operator at lk top sees the nodes of a cluster, and which one is lost.
func TestTopShowsNodes(t *testing.T) {
	s := startScreen(t)
	folder := t.TempDir()
	lk := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("lk", args...).CombinedOutput(); err != nil {
			t.Fatalf("lk %v: %v\n%s", args, err, out)
		}
	}
	one, two, token := filepath.Join(folder, "one"), filepath.Join(folder, "two"), filepath.Join(folder, "token")
	host := fmt.Sprintf("127.%d.%d", 100+os.Getpid()/250%100, os.Getpid()%250) // of this process alone
	lk("cluster", "init", "--data", one, "--name", "one", "--peers", host+".1")
	first := startServer(t, folder, "--data", one, "--http", "off")
	t.Cleanup(func() { first.stop(t) })
	s.types("lk top "+first.url, "Enter")
	s.shows(`\nengine cluster, .*\ncluster ready: 1 voter reached, 1 needed; one leads, in term \d+; this is one`)
	lk("cluster", "token", "--data", one, "--out", token)
	second := startServer(t, t.TempDir(), "--data", two, "--http", "off", "--join", token, "--name", "two", "--peers",
		host+".2")
	s.types("n")
	s.shows(`\none +leader +rank 8 +this node .*\ntwo +learner +rank 8 +reached .*\n`)
	second.cmd.Process.Kill()
	<-second.ended
	s.shows(`ALARM \(n: nodes; 1 more\): node "two", a learner, has not been reached for \S+: (.*\n)+` +
		`two +learner +rank 8 +not reached for (.*\n)+alarm: the cluster has 1 of the 3 voters that it wants: `)
	s.types("q")
	s.shows(`ALARM (.*\n)+  PATH .*\n +nothing is held`)
	s.types("q")
}

// lk top says what it needs, and at its start what is wrong with the engine; it never takes the
// screen for that.
func TestTopRefusesPlainly(t *testing.T) {
	s := startScreen(t)
	s.types("lk top </dev/null | cat", "Enter")
	s.shows(`lk top: it needs a terminal that can move its cursor: lk ls --watch prints the list anywhere`)
	s.types("clear; lk top lk://127.0.0.1:1; echo code=$?", "Enter")
	s.shows(`127.0.0.1:1: connection refused(.*\n)+code=69`)
	s.types("clear; lk top nowhere; echo code=$?", "Enter")
	s.shows(`lk top: the argument: .*nowhere(.*\n)+code=2`)
	s.types("clear; lk top a b; echo code=$?", "Enter")
	s.shows(`lk top: 2 arguments: .*\ncode=2`)
}
