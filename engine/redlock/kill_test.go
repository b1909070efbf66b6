package redlock

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func(args []string) error{"mortal": playMortal})
	os.Exit(testdb.Run(m))
}

// mortal is a server whose process kills itself, as by kill -9, at its nth pipeline to any server:
// before it is sent if n is even, else before its answers are read.
type mortal struct {
	Server
	sent *atomic.Int64
	last int64
}

func (s mortal) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	return s.send(ctx, s.Server, commands)
}

func (s mortal) send(ctx context.Context, by redisconn.Pipeliner, commands [][]any) ([]any, error) {
	n := s.sent.Add(1)
	if n == s.last && n%2 == 0 {
		die()
	}
	replies, err := by.Pipeline(ctx, commands)
	if n == s.last {
		die()
	}
	return replies, err
}

// mortalConnection is a connection to a mortal server, whose pipelines count too.
type mortalConnection struct {
	redisconn.Connection
	server mortal
}

func (s mortal) Connect() redisconn.Connection { return mortalConnection{s.Server.Connect(), s} }

func (c mortalConnection) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	return c.server.send(ctx, c.Connection, commands)
}

func die() {
	self, _ := os.FindProcess(os.Getpid())
	_ = self.Kill()
	select {}
}

// playMortal takes the paths that a line of the input names, and releases them when a line says
// "release". It says "open", "granted FENCE" and "released". Its arguments are the URL, and the pipeline at which it
// dies.
func playMortal(args []string) error {
	ctx := context.Background()
	a, err := parse(args[0])
	if err != nil {
		return err
	}
	servers, err := a.servers()
	if err != nil {
		return err
	}
	last, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	var sent atomic.Int64
	for i := range servers {
		servers[i] = mortal{servers[i], &sent, last}
	}
	e, err := New(ctx, servers, Settings{Prefix: a.prefix})
	if err != nil {
		return err
	}
	c := lockkeeper.New(e, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	fmt.Println("open")
	var h *lockkeeper.Hold
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "release" {
			if err := h.Release(ctx); err != nil {
				return err
			}
			fmt.Println("released")
			continue
		}
		var all []lockkeeper.Request
		for _, path := range strings.Fields(in.Text()) {
			all = append(all, lockkeeper.Exclusive(path))
		}
		if h, err = c.Acquire(ctx, all...); err != nil {
			return err
		}
		fmt.Println("granted", h.Fence())
	}
	return c.Close()
}

// Processes are killed, the nth at its nth exchange with a server, among clients that want the same
// paths. Nothing is granted twice, and everything is free when their sessions have ended.
func TestKilledAtEveryExchange(t *testing.T) {
	seed := testmode.Seed(t)
	var servers []*testdb.Server
	for range 3 {
		servers = append(servers, testdb.Redis(t))
	}
	url := urlOf(servers...)
	open := func() *Engine {
		e, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	rules := history.RulesOf(guarantees())
	rules.FIFO, rules.Priority = false, false // a victim's requests reach some servers and others not
	rules.SplitVotes = true
	load := stress.New(seed, rules)
	for range 2 {
		load.Add("client", open(), 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	kills := testmode.Pick(45, 300)
	var n, killed atomic.Int64
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() {
			for at := n.Add(1); int(at) <= kills; at = n.Add(1) {
				v := &victim{load: load, name: fmt.Sprintf("victim%d", at), random: rand.New(rand.NewPCG(seed, uint64(at)))}
				if v.live(t, url, at) {
					killed.Add(1)
				}
			}
		})
	}
	running.Wait()
	load.Pause()
	if err := stress.CheckFree(open(), 20*time.Second); err != nil {
		t.Error(err)
	}
	for _, fault := range load.Faults() {
		t.Error(fault)
	}
	t.Logf("%s; %d of %d were killed while they used the locks", load, killed.Load(), kills)
	if err := load.Close(); err != nil {
		t.Error(err)
	}
	if load.Granted.Load() == 0 || killed.Load() == 0 {
		t.Error("nothing was granted, or no process was killed in use: that proves nothing")
	}
}

// victim is a process that takes locks until it dies.
type victim struct {
	load   *stress.Load
	name   string
	random *rand.Rand
}

// live lets it run, and reports whether it died after it had opened the engine.
func (v *victim) live(t *testing.T, url string, last int64) bool {
	p := roles.Start(t, "mortal", url, fmt.Sprint(last))
	if word, rest := p.ReadLine(); word != "open" {
		if word != "" {
			t.Errorf("%s says %s %s", v.name, word, rest)
		}
		return false
	}
	for i := 0; ; i++ {
		e := history.Event{Client: v.name, Claim: fmt.Sprintf("%s.%d", v.name, i)}
		var paths []string
		for _, k := range v.random.Perm(len(stress.Trees))[:1+i%2] {
			paths = append(paths, string(stress.Trees[k]))
			e.Targets = append(e.Targets, lockkeeper.Target{Path: stress.Trees[k], Mode: lockkeeper.ModeExclusive})
		}
		v.record(e, history.Ask)
		p.Send(paths...)
		word, rest := p.ReadLine()
		if word == "granted" {
			granted := e
			granted.Fence, _ = strconv.ParseUint(rest, 10, 64)
			for _, target := range e.Targets {
				granted.Grants = append(granted.Grants, lockkeeper.Grant{Target: target})
			}
			v.record(granted, history.Granted)
			v.record(e, history.Release)
			p.Send("release")
			if word, rest = p.ReadLine(); word == "released" {
				v.record(e, history.Released)
				continue
			}
		}
		if word != "" {
			t.Errorf("%s says %s %s", v.name, word, rest)
		}
		v.load.Record(history.Event{Kind: history.Gone, Client: v.name})
		return true
	}
}

func (v *victim) record(e history.Event, kind history.Kind) {
	e.Kind = kind
	v.load.Record(e)
}
