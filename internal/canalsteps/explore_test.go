package canalsteps

import (
	"flag"
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

var (
	larger  = flag.Bool("larger", false, "explore larger scopes too, which takes some minutes and 4 GB")
	workers = flag.Int("workers", 3, "how many workers a crowd has at most; 4 take half an hour")
)

// TestEveryInterleaving explores every state of every scope. In each nothing may be
// wrong, and all of them together must take every step of canal.
func TestEveryInterleaving(t *testing.T) {
	if testing.Short() {
		*workers = min(*workers, 2)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // it makes little garbage, and remembers much
	total := &tally{}
	for _, sc := range scopes() {
		for keep := range uint8(2) {
			if sc.large && !*larger {
				continue
			}
			sc.keep = keep
			one := &tally{}
			one.explore(t, sc)
			t.Logf("%v: %s, keep %d", one, sc.name, keep)
			total.add(one)
		}
	}
	for _, c := range crowds {
		for n := range *workers {
			some := &tally{}
			all := c.scopes(n + 1)
			for _, sc := range all {
				some.explore(t, sc)
				sc.keep = 1
				some.explore(t, sc)
			}
			t.Logf("%v: %s: %d scopes of %d workers", some, c.name, 2*len(all), n+1)
			total.add(some)
		}
	}
	t.Logf("%v: all", total)
	for at, step := range canal {
		if step.name != "" && total.taken[at] == 0 {
			t.Errorf("step %d (%s) was never taken: add a scope that takes it", at, step.name)
		}
	}
}

// tally is what has been explored.
type tally struct {
	states, steps int
	took          time.Duration
	taken         [pcs]int
}

func (y *tally) explore(t *testing.T, sc scope) *explorer {
	t.Helper()
	start := time.Now()
	x := explore(sc.sized())
	if x.fault.text != "" {
		t.Errorf("%s, keep %d:\n%s", sc.name, sc.keep, x.story())
	}
	y.add(&tally{len(x.states.values), len(x.edges.to), time.Since(start), x.taken})
	return x
}

func (y *tally) add(z *tally) {
	y.states += z.states
	y.steps += z.steps
	y.took += z.took
	for at, n := range z.taken {
		y.taken[at] += n
	}
}

func (y *tally) String() string {
	return fmt.Sprintf("%8d states, %9d steps, %6d ms", y.states, y.steps, y.took.Milliseconds())
}

// TestExplorerMissesNothing does the same without any of its cleverness: every
// schedule of small scopes, one after the other, and every state as it is.
func TestExplorerMissesNothing(t *testing.T) {
	for _, sc := range []scope{
		{programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 2)}}},
		{programs: [][]call{{take(1, "a", 1, 1).as(1)}, {closes(1)}, {give(1)}}},
		{programs: [][]call{{take(1, "a", 1, 1)}, {take(2, "b", 1, 1)}}, keep: 1},
	} {
		sc.stay = true
		x := explore(sc.sized())
		all := map[state]bool{}
		schedules := 0
		var follow func(st state)
		follow = func(st state) {
			all[st] = true
			stuck := true
			for i := range x.programs {
				next := st
				if st.workers[i].at != finished && x.step(&next, i) {
					stuck = false
					follow(next)
				}
			}
			if stuck {
				schedules++
			}
		}
		follow(x.start())
		if x.fault.text != "" || len(all) != len(x.states.values) {
			t.Errorf("%v: explored %d states, and there are %d %v", sc.programs, len(x.states.values), len(all), x.fault)
		}
		t.Logf("%d schedules, %d states", schedules, len(all))
	}
}
