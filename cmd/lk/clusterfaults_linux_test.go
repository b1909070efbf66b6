package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A labFault breaks some nodes, which are at most a minority, and returns what mends them.
type labFault struct {
	name string
	do   func(l *lab, random *rand.Rand, victims []*labNode) (mend func())
}

// each is a fault of each victim by itself.
func each(fault, mend func(n *labNode)) func(*lab, *rand.Rand, []*labNode) func() {
	return func(_ *lab, _ *rand.Rand, victims []*labNode) func() {
		for _, n := range victims {
			fault(n)
		}
		return func() {
			for _, n := range victims {
				mend(n)
			}
		}
	}
}

func lose(toRest, toNode bool) func(n *labNode) {
	return func(n *labNode) { n.ok(n.cable.Lose(toRest, toNode)) }
}

func restart(n *labNode) { n.start() }

var labFaults = []labFault{
	{"kill -9", each((*labNode).kill, restart)},
	{"TERM", each((*labNode).terminate, restart)},
	{"SIGSTOP", each(
		func(n *labNode) { n.signal(unix.SIGSTOP) },
		func(n *labNode) { n.signal(unix.SIGCONT) })},
	{"cut off", each(lose(true, true), lose(false, false))},
	{"nobody hears it", each(lose(true, false), lose(false, false))},
	{"it hears nobody", each(lose(false, true), lose(false, false))},
	{"power lost, and back with another boot clock", each((*labNode).kill, func(n *labNode) {
		n.origin += 24 * time.Hour
		if n.origin > 7*24*time.Hour {
			n.origin = 0
		}
		n.start()
	})},
	{"disk full", each(
		func(n *labNode) { fillDisk(n.T, filepath.Join(n.disk, "filler")) }, // the node goes on, and waits for room
		func(n *labNode) { n.ok(os.Remove(filepath.Join(n.disk, "filler"))) })},
	{"slow syncs", slowSyncs},
	{"packets of one way between two nodes are lost", oneWay},
	{"all are killed", func(l *lab, _ *rand.Rand, _ []*labNode) func() {
		for _, n := range l.nodes {
			n.signal(unix.SIGKILL)
		}
		for _, n := range l.nodes {
			n.kill()
		}
		return func() {
			for _, n := range l.nodes {
				n.start()
			}
		}
	}},
}

// slowSyncs lets each sync take longer, up to half a second.
func slowSyncs(_ *lab, random *rand.Rand, victims []*labNode) func() {
	var all []*exec.Cmd
	for _, n := range victims {
		delay := fmt.Sprintf("inject=fsync,fdatasync:delay_exit=%d", 20_000+random.IntN(480_000)) // µs
		cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(n.cmd.Process.Pid),
			"-e", "trace=fsync,fdatasync", "-e", delay)
		n.ok(cmd.Start())
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			_ = cmd.Process.Signal(unix.SIGTERM)
			_ = cmd.Wait() // its status is the signal
		}
	}
}

// oneWay drops packets from a node to another. Both still reach all others, and the clients both.
func oneWay(l *lab, random *rand.Rand, victims []*labNode) func() {
	from := victims[0]
	to := from
	for to == from {
		to = l.nodes[random.IntN(len(l.nodes))]
	}
	l.drop(true, from.labHost, to.labHost)
	return func() { l.drop(false, from.labHost, to.labHost) }
}

// A labTrial is a lab under faults, judged by the histories of its clients.
type labTrial struct {
	*lab
	random *rand.Rand
	judge  *stress.Load
	faults []labFault // those that come next
	done   int
}

// victims returns a node, often the leader; of five nodes sometimes two.
func (t *labTrial) victims() []*labNode {
	perm := t.random.Perm(len(t.nodes))
	first, number := t.nodes[perm[0]], 1+t.random.IntN((len(t.nodes)+1)/2)%2
	if t.random.IntN(2) == 0 {
		first = t.leader()
	}
	all := []*labNode{first}
	for _, i := range perm {
		if n := t.nodes[i]; n != first && len(all) < min(number, (len(t.nodes)-1)/2) {
			all = append(all, n)
		}
	}
	return all
}

// fault lets one fault happen, and mends it.
func (t *labTrial) fault() {
	t.Helper()
	if len(t.faults) == 0 {
		for _, i := range t.random.Perm(len(labFaults)) {
			t.faults = append(t.faults, labFaults[i])
		}
	}
	f := t.faults[0]
	t.faults = t.faults[1:]
	t.done++
	victims := t.victims()
	var names []string
	for _, n := range victims {
		names = append(names, n.name)
	}
	lasts := 200*time.Millisecond + time.Duration(t.random.Int64N(int64(3*time.Second)))
	began := time.Now()
	mend := f.do(t.lab, t.random, victims)
	<-time.After(lasts)
	mend()
	t.Logf("fault %d: %s, %v, for %s", t.done, f.name, names, time.Since(began).Round(time.Millisecond))
	<-time.After(time.Duration(t.random.Int64N(int64(1500 * time.Millisecond))))
	for _, n := range t.nodes {
		if !n.runs() {
			if !n.mayEnd {
				t.Errorf("%s ended by itself:\n%s", n.name, n.lastWords())
			}
			n.start()
		}
	}
}

// leg lets some faults happen, checks that everything gets free after them, and judges the history.
func (t *labTrial) leg(faults int) {
	t.Helper()
	for range faults {
		t.fault()
	}
	events, wrong := t.observe() // else the check below waits behind claims of a higher priority
	wrong = append(wrong, t.judge.Judge(events)...)
	for _, fault := range wrong[:min(len(wrong), 20)] {
		t.Error(fault)
	}
	began := time.Now()
	e, err := openSoon(t.Context(), t.nodes[0].url())
	t.ok(err)
	if err := stress.CheckFree(e, patience); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	free := time.Since(began)
	for _, c := range t.crowds {
		t.Logf("%s %s", c.name, c.said)
	}
	t.Logf("%d events; everything was free after %s", len(events), free.Round(time.Millisecond))
	if t.Failed() {
		for _, n := range t.nodes {
			t.Logf("%s:\n%s", n.name, n.lastWords())
		}
	}
	t.resume()
}

// Real servers of a cluster, each on a host of its own, while one fault follows another: processes are
// killed, terminated and stopped, packets are lost, also one way, disks are full or slow, and boot clocks
// are a day apart. Clients on two further hosts, with a TTL of a second, leave histories without faults;
// after the faults everything becomes free.
func TestClusterOfRealServersUnderFaults(t *testing.T) {
	needLab(t)
	t.Parallel()
	if !badnet.Alone(t) {
		return
	}
	for _, n := range testmode.Pick([]int{3}, []int{3, 5}) {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			seed := testmode.Seed(t)
			l := newLab(t, n)
			e, err := openSoon(t.Context(), l.nodes[0].url())
			l.ok(err)
			rules := history.RulesOf(e.Guarantees())
			l.ok(e.Close())
			l.newCrowd("east", seed, 0)
			l.newCrowd("west", seed+1, 30*24*time.Hour)
			all := &labTrial{lab: l, random: rand.New(rand.NewPCG(seed, 1)), judge: stress.New(seed, rules)}
			for range testmode.Pick(1, 50) {
				all.leg(5)
				if t.Failed() {
					break
				}
			}
		})
	}
}
