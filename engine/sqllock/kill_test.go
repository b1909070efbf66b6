package sqllock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// gather starts many clients on a database, each on an engine of its own. Some of its holds last
// that long at most, most of them milliseconds.
func gather(t *testing.T, seed uint64, long time.Duration, urls ...string) *stress.Load {
	t.Helper()
	var c *stress.Load
	for _, url := range urls {
		e, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			c = stress.New(seed, history.RulesOf(e.Guarantees()))
			c.Long = long
		}
		c.Add("client", e, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	return c
}

// verdict fails the test for every fault that the clients have found.
func verdict(t *testing.T, c *stress.Load) {
	t.Helper()
	for _, wrong := range c.Faults() {
		t.Error(wrong)
	}
	t.Log(c)
}

// Processes are killed, the nth when the database has done its nth request, among many clients that
// want the same paths. Nothing is granted twice, and everything is free when their sessions have
// ended.
func TestKilledAtEveryRequest(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		seed := testmode.Seed(t)
		url := k.shared(t).Database(t)
		c := gather(t, seed, 0, url, url)
		kills := testmode.Pick(30, 300) // the nth process at its nth request
		var n, commits atomic.Int64
		var running sync.WaitGroup
		for range 3 {
			p := testdb.NewProxy(t, k.shared(t))
			running.Go(func() {
				for at := n.Add(1); int(at) <= kills; at = n.Add(1) {
					v := &victim{stress: c, name: fmt.Sprintf("victim%d", at), random: rand.New(rand.NewPCG(seed, uint64(100+at)))}
					v.visit(t, p, p.URL(databaseName(url)), int(at))
					if strings.Contains(p.Struck(), "COMMIT") {
						commits.Add(1)
					}
				}
			})
		}
		running.Wait()
		c.Pause()
		e := openEngine(t, url)
		if err := stress.CheckFree(quiet{e}, longest); err != nil {
			t.Error(err)
		}
		verdict(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("%d of %d were killed after COMMIT, before the answer", commits.Load(), kills)
		if c.Granted.Load() == 0 || commits.Load() == 0 {
			t.Error("nothing was granted, or nobody was killed at COMMIT: that proves nothing")
		}
		noLatches(t, e)
	})
}

// quiet is an engine that stays open when a client of it is closed.
type quiet struct{ *Engine }

func (quiet) Close() error { return nil }

// databaseName is that of the database that a URL names.
func databaseName(url string) string {
	name, _, _ := strings.Cut(url[strings.LastIndexByte(url, '/')+1:], "?")
	return name
}

// noLatches sees that nobody has a latch any more.
func noLatches(t *testing.T, e *Engine) {
	t.Helper()
	if e.db.flavour != postgres {
		return // they are locks of rows, which can't be told from others
	}
	latches := -1
	err := e.db.pool.QueryRow(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid
		FROM pg_database WHERE datname = current_database())`).Scan(&latches)
	if err != nil || latches != 0 {
		t.Errorf("there are %d latches, %v", latches, err)
	}
}

// victim is a process that takes locks until it is killed.
type victim struct {
	stress *stress.Load
	name   string
	random *rand.Rand

	mu   sync.Mutex
	dead bool
}

// record records an event, unless the process is dead.
func (v *victim) record(e history.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.dead {
		v.stress.Record(e)
	}
}

// visit lets it run until it is killed at its nth request.
func (v *victim) visit(t *testing.T, proxy *testdb.Proxy, url string, n int) {
	var p *process
	started := make(chan struct{})
	proxy.Call(n, func() {
		<-started
		v.mu.Lock()
		defer v.mu.Unlock()
		p.Signal(os.Kill)
		v.stress.Record(history.Event{Kind: history.Gone, Client: v.name})
		v.dead = true
	})
	p = start(t, url, lockkeeper.MinTTL)
	close(started)
	if word, rest := p.ReadLine(); word != "open" {
		v.gone(t, p, word+" "+rest)
		return
	}
	for i, refused := 0, 0; ; i++ {
		base := history.Event{Client: v.name, Claim: fmt.Sprintf("%s.%d", v.name, i)}
		var paths []string
		for _, k := range v.random.Perm(len(stress.Paths))[:1+i%2] {
			paths = append(paths, string(stress.Paths[k]))
			base.Targets = append(base.Targets, lockkeeper.Target{Path: stress.Paths[k], Mode: lockkeeper.ModeExclusive})
		}
		base.Kind = history.Ask
		v.record(base)
		p.Send("lock", strings.Join(paths, " "))
		word, rest := p.ReadLine()
		if word == "refused" && strings.Contains(rest, lockkeeper.ErrUnavailable.Error()) && refused < 5 {
			// The machine stood still, so that its session ended while it waited. It asks again.
			refused++
			base.Kind = history.Unknown
			v.record(base)
			continue
		}
		if word != "granted" {
			v.gone(t, p, word+" "+rest)
			return
		}
		e := base
		e.Kind, e.Fence = history.Granted, number(t, rest)
		for _, target := range base.Targets {
			e.Grants = append(e.Grants, lockkeeper.Grant{Target: target})
		}
		v.record(e)
		base.Kind = history.Release
		v.record(base)
		p.Send("release")
		if word, rest := p.ReadLine(); word != "released" {
			v.gone(t, p, word+" "+rest)
			return
		}
		base.Kind = history.Released
		v.record(base)
	}
}

// gone sees that a process that says nothing expected has been killed.
func (v *victim) gone(t *testing.T, p *process, line string) {
	v.mu.Lock()
	dead := v.dead
	v.mu.Unlock()
	if line = strings.TrimSpace(line); line != "" || !dead {
		t.Errorf("%s says %q, and was killed: %t", v.name, line, dead)
	}
}

func number(t *testing.T, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}
