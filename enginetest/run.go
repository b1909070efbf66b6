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

// Open opens a handle on one state of an engine. The suite closes the handle.
type Open func() lockkeeper.Engine

// Harness says how to open the engine under test.
type Harness struct {
	// Fresh makes a new state for one check, and returns the function that opens handles on it. It
	// may use t.TempDir and t.Cleanup. Checks run concurrently.
	Fresh func(t *testing.T) Open

	// Many says that Open may be called more than once for a state. Each handle stands for another
	// process, and the suite spreads its sessions over two of them.
	Many bool

	// Bubble says that the engine runs in this process and takes all time from package time, so the
	// suite can run it in a bubble of testing/synctest. Otherwise checks run in real time, many at
	// once, on sessions with TTLs of a few seconds.
	Bubble bool

	// Clock is the clock of the clients' deadlines. Nil means their default, or in a bubble the
	// clock of the bubble.
	Clock func() time.Duration

	// Calm ends the faults that the environment injects, if any. Stress calls it after all
	// operations: from then on every path must become free within the longest TTL.
	Calm func()

	// Skip maps the full names of checks that no engine could pass in this environment to the
	// reason. Where Contention/tries is skipped, Stress does not judge why a try was refused.
	Skip map[string]string

	// Restart ends the engine as a crash does and opens the same state again. Nil means that the
	// engine has no process that could restart.
	Restart func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine
}

// check is one subtest. The part of its name before the slash is its group.
type check struct {
	name  string
	needs lockkeeper.Features
	run   func(w *world)
}

// checks returns the whole suite.
func checks() []check {
	return slices.Concat(
		pathChecks, modeChecks, orderChecks, manyChecks, permitChecks, waitChecks, softChecks,
		stealChecks, leaseChecks, notifiedChecks, ackChecks, fenceChecks, convertChecks, deadlockChecks, onceChecks,
		lowestOpenChecks, reasonChecks,
		operatorChecks, listChecks, resumeChecks, epochChecks, badInputChecks,
		lossChecks, lapseChecks, reasonPairChecks, cancelChecks, abandonChecks, contentionChecks, unsupportedChecks,
		slotCases, readWriteCases, stealCases, grabCases, clusterCases, grabFlaws, clusterFlaws,
	)
}

// Run runs the whole suite against the engine. If the engine does not claim a feature, Run skips
// the checks of the feature, and checks that the engine refuses requests that need it.
func Run(t *testing.T, h Harness) {
	h.runChecks(t, checks())
}

// runChecks runs many checks at once, because most of them wait most of the time.
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
							if h.Bubble {
								h.run(t, c.run)
							} else {
								h.attempts(t, c.run)
							}
						})
					})
				}
				running.Wait()
			})
		})
	}
	running.Wait()
}

// guarantees opens a handle, reads its guarantees, and closes it before the checks begin.
func (h Harness) guarantees(t *testing.T) lockkeeper.Guarantees {
	t.Helper()
	e := h.Fresh(t)()
	defer e.Close()
	return e.Guarantees()
}

// run runs a body in a new world and judges the recorded history.
func (h Harness) run(t *testing.T, body func(*world)) {
	t.Helper()
	var w *world
	inside := func(t *testing.T) {
		w = newWorld(t, h, nil)
		body(w)
	}
	if h.Bubble {
		synctest.Test(t, inside)
	} else {
		inside(t)
	}
	reportFaults(t, history.Judge(w.recorder.Events(), w.rules))
}

// reportFaults fails the test for each fault of a history.
func reportFaults(t *testing.T, faults []string) {
	t.Helper()
	for i, wrong := range faults {
		if i == 20 {
			t.Errorf("history: further faults are omitted")
			break
		}
		t.Errorf("history: %s", wrong)
	}
}
