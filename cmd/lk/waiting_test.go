package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// lines collects the printed lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	return len(text), nil
}

func (l *lines) is(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Join(l.all, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("printed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	l.all = nil
}

// waits makes a client wait for these paths in a bubble, behind a holder of b.
func waits(t *testing.T, o *runOptions, then func(printed *lines, holder *lockkeeper.Hold)) {
	w := o.wanted(time.Now())
	synctest.Test(t, func(t *testing.T) {
		shared := memlock.New()
		client := lockkeeper.New(shared, lockkeeper.SessionLabel(lockkeeper.Label{As: "waiter"}))
		defer client.Close()
		holder, err := client.Lock(t.Context(), "b", lockkeeper.WithAs("hold"))
		if err != nil {
			t.Fatal(err)
		}
		pending, err := client.Enqueue(t.Context(), w.requests(w.targets)...)
		if err != nil {
			t.Fatal(err)
		}
		printed := &lines{}
		a := &app{stderr: printed}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.reportWait(ctx, client, pending.Ref(), w)
		}()
		synctest.Wait()
		then(printed, holder)
		cancel()
		<-ended
		pending.Cancel()
	})
}

func wanting(paths ...lockkeeper.Path) *runOptions {
	o := &runOptions{wait: lockkeeper.Forever, label: lockkeeper.Label{As: "waiter"}}
	for _, path := range paths {
		o.targets = append(o.targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive})
	}
	return o
}

// lk repeats the current state of a long wait.
func TestLongWaitIsPrintedEveryTwoMinutes(t *testing.T) {
	waits(t, wanting("a", "b", "c"), func(printed *lines, _ *lockkeeper.Hold) {
		printed.is(t, "lk: waiting for b: held by hold for <1s, 1st in line (wanted: a, b, c)")
		time.Sleep(stateEvery - time.Second)
		synctest.Wait()
		printed.is(t)
		time.Sleep(stateEvery)
		synctest.Wait()
		printed.is(t, "lk: waiting for b: held by hold for 2m, 1st in line (wanted: a, b, c)")
		time.Sleep(stateEvery)
		synctest.Wait()
		printed.is(t, "lk: waiting for b: held by hold for 4m, 1st in line (wanted: a, b, c)")
	})
}

// --steal asks only holders of lower priority. If it asks nobody, lk says so once.
func TestStealThatAsksNobodyIsPrinted(t *testing.T) {
	o := wanting("b")
	o.steal = true
	waits(t, o, func(printed *lines, _ *lockkeeper.Hold) {
		time.Sleep(stateEvery)
		synctest.Wait()
		printed.is(t,
			"lk: waiting for b: held by hold for <1s, 1st in line",
			"lk: --steal asks nobody: the holder has priority 0, and so have you; see --priority",
			"lk: waiting for b: held by hold for 2m, 1st in line")
	})
	o = wanting("b")
	o.steal, o.priority = true, 1
	waits(t, o, func(printed *lines, _ *lockkeeper.Hold) {
		printed.is(t, "lk: waiting for b: held by hold for <1s, asked to yield, 1st in line")
	})
}

// An unblocked claim waits for the engine to end the last holder, as on a database when a
// session has expired and no process has ended it yet.
func TestWaitAlwaysHasAReason(t *testing.T) {
	var printed lines
	report := newWaitReport(contest{wanted: []lockkeeper.Path{"a", "b"}}, func(text string) {
		printed.Write([]byte(text))
	},
		nil)
	waiting := lockkeeper.Status{State: lockkeeper.Waiting, Position: 1}
	report.write(waiting)
	printed.is(t, "waiting for a and 1 more: the engine has yet to end a holder that has not renewed, 1st in line "+
		"(wanted: a, b)")
	held := waiting
	held.Blockers = []lockkeeper.Blocker{{Why: lockkeeper.HeldBy, Path: "b/c", Label: lockkeeper.Label{As: "dead"}}}
	report.write(held)
	report.write(waiting)
	printed.is(t, "waiting for b: held by dead for <1s, 1st in line (wanted: a, b)",
		"b: waiting for the engine to end dead, which has not renewed (wanted: a, b)")
}

// silentEnding never answers End.
type silentEnding struct{ lockkeeper.Engine }

func (e silentEnding) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt, g.Reach = false, lockkeeper.OnNetwork
	return g
}

func (e silentEnding) End(ctx context.Context, _ lockkeeper.Key, _ lockkeeper.Ending) error {
	<-ctx.Done()
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ctx.Err()}
}

// If the engine is gone, lk returns within 2 s after its command.
func TestReleaseAtASilentEngineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		c := &connection{Client: lockkeeper.New(silentEnding{memory}), url: "lk://h"}
		hold, err := c.Lock(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		unreleased := c.release(hold, began.Add(releaseTime))
		if took := time.Since(began); unreleased != "lk://h is unreachable" || took > 2*time.Second {
			t.Errorf("after %s: %q", took, unreleased)
		}
		c.closeBy(time.Now().Add(releaseTime)) // it is closed already
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closed a second time, after %s", took)
		}
		c.Close() // so that nothing is left in the bubble
	})
}

// leaderlessEnding is the engine of a cluster that has lost its quorum.
type leaderlessEnding struct{ silentEnding }

func (leaderlessEnding) Outage() error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.QuorumLost}
}

// In a cluster without a leader no lease ends, so no lock is free a TTL after a release that failed.
func TestReleaseWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := leaderlessEnding{silentEnding{memlock.New()}}
		c := &connection{Client: lockkeeper.New(e), engine: e, url: "lk://h"}
		hold, err := c.Lock(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		unreleased := c.release(hold, time.Now().Add(releaseTime))
		said := unreleased + ": it is free " + freeAfter("30s", unreleased == leaderless)
		if said != "the cluster has no leader: it is free at most 30s after the cluster has a leader again" {
			t.Errorf("it says %q", said)
		}
		c.Close()
	})
}

// silentClaims never answers Claim.
type silentClaims struct{ silentEnding }

func (e silentClaims) Claim(ctx context.Context, _ lockkeeper.Key, _ lockkeeper.Want) (lockkeeper.Status, error) {
	<-ctx.Done()
	return lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ctx.Err()}
}

// A wait at a silent engine says for how long lk asks, and that is true: without --wait for the TTL.
func TestWaitSaysForHowLongItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := silentClaims{silentEnding{memlock.New()}}
		client := lockkeeper.New(e, lockkeeper.SessionTTL(20*time.Second))
		c := &connection{Client: client, engine: e, attached: new(attachments)}
		o := &runOptions{
			wait: lockkeeper.Forever, ttl: 20 * time.Second,
			targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
		}
		said := &lines{}
		a := &app{stderr: said}
		p := o.plan()
		began := time.Now()
		_, err := a.wait(t.Context(), c, p.wanted, p.wanted.requests(p.wanted.targets))
		took := time.Since(began).Round(time.Second)
		if !errors.Is(err, lockkeeper.ErrUnavailable) || took != 20*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		said.is(t, "lk: db: not in line yet: the engine accepts no requests now; lk keeps asking for 20s (lk doctor says "+
			"what is wrong)")
		c.Close()
	})
}
