package replica

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

var usual = profile{machines: 5, voters: 3, clients: 6, faults: 40 * time.Second, quiet: 30 * time.Second}

// simulate runs a world with faults, and then whole. It returns the world and what is wrong with it.
func simulate(t *testing.T, p profile, seed uint64, s schedule) (*world, []string) {
	w := newWorld(t, p, seed)
	w.endsSoon = true
	w.readSometimes()
	w.misbehave(s)
	if p.program.Latest == earlierRules.Latest {
		w.upgradeAll(p.faults)
	}
	w.run(p.faults)
	w.heal()
	const elections = 10 * time.Second // ten election timeouts: of two voters, both may ask for votes at once
	w.run(elections)
	if len(w.judge.faults) == 0 && !w.leader().replica.Status().Ready {
		w.faultf("nobody leads %s after the world is whole", elections)
	}
	w.run(p.quiet - elections)
	if len(w.judge.faults) == 0 {
		w.judge.settled()
	}
	return w, w.judge.verdict()
}

// simulateMany runs worlds of a profile, and returns how often what happened in them. Whatever fails in a
// world or after all of them, the output has the seeds: after a panic in the name of the test.
func simulateMany(t *testing.T, p profile, n int) map[string]int {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // a world keeps little, and allocates all the time
	seen := make(map[string]int)
	var seeds []uint64
	defer func() { t.Logf("seeds: %d to %d", seeds[0], seeds[len(seeds)-1]) }()
	for seed := range testmode.Seeds(t, n) {
		seeds = append(seeds, seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("replay: " + testmode.Replay(t, seed))
				}
			})
			s := scheduleOf(p, seed)
			w, faults := simulate(t, p, seed, s)
			for what, n := range w.seen { // order does not matter: sums
				seen[what] += n
			}
			if len(faults) == 0 {
				return
			}
			s = shrink(s, testmode.Pick(100, 400), func(part schedule) bool {
				_, faults := simulate(t, p, seed, part)
				return len(faults) > 0
			})
			w, fewer := simulate(t, p, seed, s)
			for _, line := range w.trace[max(0, len(w.trace)-200):] {
				t.Log(line)
			}
			t.Logf("it takes these faults:\n%s\nto come to %q", s, fewer[:min(len(fewer), 5)])
			t.Errorf("%d faults, the first ones: %q", len(faults), faults[:min(len(faults), 5)])
		})
		if t.Failed() {
			break
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d %s", seen[what], what)
	}
	return seen
}

// Three voters among five machines, with all faults but those of clocks. First nothing unsafe
// happens; then the world is whole, and everybody is served.
func TestSimulation(t *testing.T) {
	seen := simulateMany(t, usual, testmode.Pick(140, 8000))
	if !testmode.Long() {
		return
	}
	for _, rare := range []string{
		"batch with several calls", "inputs together",
		"leader changed", "leadership transferred", "writes lost", "batch torn", "disk lost",
		"disk full", "snapshot installed", "hash stated", "voters: promote", "voters: remove", "read", "unavailable: unknown",
		"unavailable: no leader", "session lost: deadline", "message to a former id",
		"cut one way", "disk failed", "node turned off", "clock slow", "asked to yield: stolen", "lapsed: overdue",
		"setting changed", "setting: lost the comparison",
	} {
		if seen[rare] == 0 {
			t.Errorf("%q never happened", rare)
		}
	}
}

// SimulateOn simulates clusters whose disks are those of another package.
func SimulateOn(t *testing.T, backing func(t *testing.T, s State) Backing) {
	p := usual
	p.backing = backing
	simulateMany(t, p, testmode.Pick(5, 100))
}

// The report of a failure names a seed. It must show the same failure again.
func TestSeedsReplay(t *testing.T) {
	seed := testmode.Seed(t)
	var traces [2][]string
	for i := range traces {
		t.Run("run", func(t *testing.T) {
			w, _ := simulate(t, usual, seed, scheduleOf(usual, seed))
			traces[i] = w.trace
		})
	}
	for i, line := range traces[0] {
		if i >= len(traces[1]) || traces[1][i] != line {
			t.Fatalf("line %d of %d and %d differs: %s", i, len(traces[0]), len(traces[1]), line)
		}
	}
}

func TestSimulationOfOtherSizes(t *testing.T) {
	for name, p := range map[string]profile{
		"1 of 1":                  {machines: 1, voters: 1, clients: 3},
		"1 of 2":                  {machines: 2, voters: 1, clients: 3},
		"3 of 3":                  {machines: 3, voters: 3, clients: 4},
		"5 of 10":                 {machines: 10, voters: 5, clients: 12},
		"3 and 3 that only learn": {machines: 6, voters: 3, clients: 6, learners: true},
	} {
		p.faults, p.quiet = usual.faults, usual.quiet
		t.Run(name, func(t *testing.T) {
			simulateMany(t, p, testmode.Pick(10, 200))
		})
	}
}

// A single voter that should not vote any more pauses, and the node that would replace it loses its disk
// meanwhile. When the voter goes on it must not give its vote to the id that is gone: two voters of
// which one never comes back can't commit anything.
func TestLeaderThatPausedDoesNotPromoteALostNode(t *testing.T) {
	w := newWorld(t, profile{machines: 2, voters: 1, clients: 3}, 1)
	w.run(10 * time.Second)
	leader, spare := w.machines[0], w.machines[1]
	w.pause(leader, 5*time.Second)
	w.run(3 * time.Second)
	w.leave(leader, 4*time.Second)
	w.run(time.Second)
	former := spare.id
	if w.loseDisk(spare); spare.id == former {
		t.Fatal("the spare node has its disk")
	}
	w.run(20 * time.Second)
	w.heal()
	w.run(10 * time.Second)
	if s := w.leader().replica.Status(); !s.Ready || len(s.Voters) != 1 {
		t.Errorf("after the pause: %+v", s)
	}
	for _, fault := range w.judge.verdict() {
		t.Error(fault)
	}
}

// Claims also take holds away. The judge of histories then knows less about counts and order.
func TestSimulationOfSteals(t *testing.T) {
	p := usual
	p.steals = true
	seen := simulateMany(t, p, testmode.Pick(20, 1000))
	if testmode.Long() && seen["lapsed: stolen"] == 0 {
		t.Error("nobody counted a hold as stolen")
	}
}

// A leader's clock that jumps ahead or runs too fast ends leases early. Fences and the table are right
// nevertheless.
func TestSimulationWithBadClocks(t *testing.T) {
	p := usual
	p.badClocks = true
	seen := simulateMany(t, p, testmode.Pick(20, 500))
	if testmode.Long() && seen["session lost: session ended"] == 0 {
		t.Error("no lease ended early")
	}
}

// A bug is planted into the surroundings of the replica. Package mutants plants bugs into its code.
type bug int

const (
	noBug        bug = iota
	lyingDisk        // it says that writes are durable before they are
	oldID            // a machine that lost its disk goes on under its id
	learnersVote     // a machine that starts counts learners as voters
)

// A simulation that finds no bug proves nothing. Faults that have to do with the bug find it soon.
func TestPlantedBugsAreFound(t *testing.T) {
	for planted, plan := range map[bug]struct {
		name string
		only []string
	}{
		lyingDisk:    {"the disk lies", []string{"crash", "crash of the leader", "the leader is cut off"}},
		oldID:        {"an id is used again", []string{"disk lost", "the leader is cut off", "slow disk"}},
		learnersVote: {"learners vote", []string{"crash", "partition", "the leader is cut off"}},
	} {
		t.Run(plan.name, func(t *testing.T) {
			p := usual
			p.bug, p.learners, p.only = planted, planted == learnersVote, plan.only
			for n := range uint64(200) {
				s := scheduleOf(p, n+1)
				if _, faults := simulate(t, p, n+1, s); len(faults) > 0 {
					t.Logf("found by seed %d: %s", n+1, faults[0])
					return
				}
			}
			t.Error("200 worlds did not show it")
		})
	}
}

// countLearners makes the learners in the configuration on the disk voters.
func (m *machine) countLearners() {
	if conf := m.disk.state.Snapshot.GetMetadata().GetConfState(); conf != nil {
		conf.Voters, conf.Learners = append(conf.Voters, conf.Learners...), nil
	}
}
