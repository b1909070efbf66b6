package enginetest

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// Open opens a handle on one state of an engine. The suite closes it.
type Open func() lockkeeper.Engine

// Harness says how to open the engine under test.
type Harness struct {
	// Fresh makes a state that no other test sees, and returns what opens
	// handles on it. It may use t.TempDir and t.Cleanup.
	Fresh func(t *testing.T) Open

	// Many says that Open may be called more than once: each handle then stands
	// for another process, and the suite spreads its sessions over two of them.
	Many bool

	// Bubble says that the engine lives in this process and takes the time from
	// package time alone, so that the suite can run it in the fake time of a
	// synctest bubble. Else tests run in real time, many at once, on sessions
	// with a TTL of one second.
	Bubble bool

	// Clock is the clock of the clients' deadlines; nil is their default, or in a
	// bubble the bubble's.
	Clock func() time.Duration

	// Calm ends the faults that the surroundings have in store, if there are any.
	// Stress calls it when everything must become free, which then takes no longer
	// than sessions live.
	Calm func()

	// Skip says of checks, by their whole names, why the surroundings of this engine
	// are such that no engine could pass them there.
	Skip map[string]string

	// Restart ends the engine as a crash would, and opens the same state again.
	// Nil if the engine has nothing that could restart.
	Restart func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine
}

// check is one subtest: of the group before the slash, in a world of its own.
type check struct {
	name  string
	needs lockkeeper.Features
	run   func(w *world)
}

// checks are the whole suite.
func checks() []check {
	return slices.Concat(
		pathChecks, modeChecks, orderChecks, manyChecks, permitChecks, patienceChecks, mannersChecks,
		stealChecks, leaseChecks, toldChecks, heardChecks, fenceChecks, convertChecks, deadlockChecks, onceChecks,
		answeredChecks, reasonChecks,
		peopleChecks, listChecks, resumeChecks, epochChecks, badInputChecks,
		lossChecks, lapseChecks, oneReasonChecks, cancelChecks, abandonChecks, contentionChecks, unsupportedChecks,
		slotCases, readWriteCases, stealCases, grabCases, clusterCases, grabFlaws, clusterFlaws,
	)
}

// Run runs the whole suite against the engine. What the engine does not claim is
// skipped by the tests of the rule, and must be refused.
func Run(t *testing.T, h Harness) {
	h.runChecks(t, checks())
}

// runChecks runs checks, many at once: most of them wait most of the time.
func (h Harness) runChecks(t *testing.T, all []check) {
	claimed := h.guarantees(t).Features
	width := 24
	if h.Bubble {
		width = runtime.GOMAXPROCS(0)
	}
	room := make(chan struct{}, width)
	var groups []string
	byGroup := make(map[string][]check)
	for _, c := range all {
		group, _, _ := strings.Cut(c.name, "/")
		if byGroup[group] == nil {
			groups = append(groups, group)
		}
		byGroup[group] = append(byGroup[group], c)
	}
	var running sync.WaitGroup
	for _, group := range groups {
		running.Go(func() {
			t.Run(group, func(t *testing.T) {
				var running sync.WaitGroup
				for _, c := range byGroup[group] {
					running.Go(func() {
						room <- struct{}{}
						defer func() { <-room }()
						t.Run(strings.TrimPrefix(c.name, group+"/"), func(t *testing.T) {
							if why := h.Skip[c.name]; why != "" {
								t.Skip(why)
							}
							if missing := c.needs &^ claimed; missing != 0 {
								t.Skipf("the engine does not claim: %s", missing)
							}
							h.run(t, c.run)
						})
					})
				}
				running.Wait()
			})
		})
	}
	running.Wait()
}

// guarantees asks a handle of its own, so that it is gone before the tests begin.
func (h Harness) guarantees(t *testing.T) lockkeeper.Guarantees {
	t.Helper()
	e := h.Fresh(t)()
	defer e.Close()
	return e.Guarantees()
}

// run runs one body in a world of its own and judges what was recorded there.
func (h Harness) run(t *testing.T, body func(*world)) {
	t.Helper()
	var w *world
	inside := func(t *testing.T) {
		w = newWorld(t, h)
		body(w)
	}
	if h.Bubble {
		synctest.Test(t, inside)
	} else {
		inside(t)
	}
	for i, wrong := range history.Judge(w.recorder.Events(), w.rules) {
		if i == 20 {
			t.Errorf("history: and more")
			break
		}
		t.Errorf("history: %s", wrong)
	}
}
