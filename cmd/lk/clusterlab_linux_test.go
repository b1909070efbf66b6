package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/internal/badnet"
)

// A lab is a cluster of real servers, each on a host and a disk of its own, and clients on further hosts.
// The namespace of the test routes all packets, and drops those that it is told to.
type lab struct {
	*testing.T
	dir    string
	nodes  []*labNode
	crowds []*crowd
}

type labHost struct {
	host  *badnet.Host
	cable *badnet.Cable
}

// A labNode is a server.
type labNode struct {
	*lab
	labHost
	name   string
	disk   string        // a file system of its own
	origin time.Duration // by which its boot clock is ahead of the test's
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
	mayEnd bool          // by itself
}

// needLab skips the test, or fails it with CI=true, where no lab can be made.
func needLab(t *testing.T) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "to mount disks takes root"
	} else if err := exec.Command("unshare", "--time", "--boottime", "86400", "true").Run(); err != nil {
		why = "no time namespace: " + err.Error()
	} else if _, err := exec.LookPath("strace"); err != nil {
		why = err.Error()
	}
	if why != "" && os.Getenv("CI") == "true" {
		t.Fatal(why + " (CI=true is set, so this is not skipped)")
	}
	if why != "" {
		t.Skip(why)
	}
}

// newLab makes a cluster of n voters. The boot clocks of its nodes began a day apart. The test must run
// alone (badnet.Alone).
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // t.TempDir has long names, and a node's folder has a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &lab{T: t, dir: dir}
	l.ok(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	for i := range n {
		at := &labNode{
			lab: l, labHost: l.newHost(), name: fmt.Sprint("node", i+1), origin: time.Duration(i) * 24 * time.Hour,
		}
		at.disk = filepath.Join(l.dir, at.name)
		l.ok(os.Mkdir(at.disk, 0o700))
		l.ok(unix.Mount("tmpfs", at.disk, "tmpfs", 0, "size=64m,mode=0700"))
		t.Cleanup(func() { _ = unix.Unmount(at.disk, unix.MNT_DETACH) })
		l.nodes = append(l.nodes, at)
		t.Cleanup(at.kill)
		if i == 0 {
			l.must(at.lk("cluster", "init", "--name", at.name, "--peers", at.cable.There))
			at.start()
		} else {
			token := at.disk + ".token"
			soon(t, "a token", func() bool {
				_, err := l.nodes[0].lk("cluster", "token", "--out", token)
				return err == nil
			})
			at.start("--join", token, "--name", at.name)
		}
	}
	if n == 5 {
		l.must(l.nodes[0].lk("cluster", "voters", "5"))
	}
	soon(t, "all nodes vote", func() bool {
		out, _ := l.nodes[0].lk("cluster", "ls")
		return strings.HasPrefix(out, fmt.Sprintf("ready: %d voters ", n))
	})
	return l
}

// soon waits until is, which starts processes, returns true.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.After(patience); !is(); {
		select {
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (l *lab) ok(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) must(out string, err error) {
	l.Helper()
	if err != nil {
		l.Fatalf("%v: %s", err, out)
	}
}

// newHost makes a host that reaches all others.
func (l *lab) newHost() labHost {
	l.Helper()
	host, err := badnet.NewHost()
	l.ok(err)
	l.Cleanup(host.Close)
	cable, err := host.Cable()
	l.ok(err)
	route := exec.Command("ip", "route", "add", "default", "via", cable.Here)
	l.ok(host.Start(route))
	l.ok(route.Wait())
	return labHost{host, cable}
}

// drop drops all packets from a host to another from now on, or no longer.
func (l *lab) drop(drops bool, from, to labHost) {
	l.Helper()
	does := "del"
	if drops {
		does = "add"
	}
	rule := exec.Command("ip", "rule", does, "from", from.cable.There, "to", to.cable.There, "blackhole")
	out, err := rule.CombinedOutput()
	l.must(string(out), err)
}

func wholeSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

func (n *labNode) data() string { return filepath.Join(n.disk, "data") }

func (n *labNode) url() string { return "lk://" + n.cable.There + ":7420" }

func (n *labNode) log() string { return n.disk + ".log" }

// lk runs a command with the node's folder.
func (n *labNode) lk(args ...string) (string, error) {
	cmd := exec.Command("lk", append(args, "--data", n.data())...)
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// start starts the server, if it does not run.
func (n *labNode) start(flags ...string) {
	n.Helper()
	if n.runs() {
		return
	}
	n.cmd = exec.Command("unshare", append([]string{"--time", "--boottime", wholeSeconds(n.origin),
		"lk", "serve", "--data", n.data(), "--listen", n.cable.There + ":7420", "--http", "off", "--insecure",
		"--peers", n.cable.There, "--log-format", "text"}, flags...)...)
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.ok(err)
	defer log.Close()
	n.cmd.Stderr = log
	n.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	n.ok(n.host.Start(n.cmd))
	n.mayEnd, n.ended = false, make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(n.cmd, n.ended)
}

func (n *labNode) runs() bool {
	if n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

func (n *labNode) signal(s unix.Signal) { _ = n.cmd.Process.Signal(s) }

// kill ends the process at once.
func (n *labNode) kill() {
	if n.cmd != nil {
		n.mayEnd = true
		n.signal(unix.SIGKILL)
		<-n.ended
	}
}

// terminate ends the process as a service manager does.
func (n *labNode) terminate() {
	n.mayEnd = true
	n.signal(unix.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.Errorf("%s has not ended %s after TERM:\n%s", n.name, patience, n.lastWords())
		n.kill()
	}
}

// lastWords returns the end of the log.
func (n *labNode) lastWords() string {
	text, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

var leads = regexp.MustCompile(`(?m)^ready: .*; (\S+) leads`)

// leader returns the node that leads, as far as a node knows; else the first one.
func (l *lab) leader() *labNode {
	for _, n := range l.nodes {
		if !n.runs() {
			continue
		}
		out, _ := n.lk("cluster", "ls")
		if found := leads.FindStringSubmatch(out); found != nil {
			for _, other := range l.nodes {
				if other.name == strings.TrimSuffix(found[1], ",") {
					return other
				}
			}
		}
	}
	return l.nodes[0]
}
