package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A fault is one fault of a world. What it does follows from its fields and from the state of the
// world alone, so a schedule without some of its faults makes sense, too.
type fault struct {
	at     time.Duration // since the beginning of the faults
	kind   int           // in faultKinds
	which  int           // chooses a machine or a client
	lasts  time.Duration
	random *rand.Rand // of this fault alone
	seed   uint64     // of random
}

func (f *fault) String() string {
	return fmt.Sprintf("%s %s, %d, for %s", f.at, faultKinds[f.kind].name, f.which, f.lasts)
}

func (f *fault) chance(p float64) bool { return f.random.Float64() < p }

// between returns a random duration from least to most.
func (f *fault) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64(most-least)+1))
}

// A schedule is what goes wrong in a world, by time.
type schedule []fault

func (s schedule) String() string {
	var lines []string
	for i := range s {
		lines = append(lines, s[i].String())
	}
	return strings.Join(lines, "\n")
}

// scheduleOf returns the faults of a world with that seed.
func scheduleOf(p profile, seed uint64) (s schedule) {
	random := rand.New(rand.NewPCG(seed, 1))
	var kinds []int
	for i, kind := range faultKinds {
		bad := i == len(faultKinds)-1
		if p.only == nil && (p.badClocks || !bad) || slices.Contains(p.only, kind.name) {
			kinds = append(kinds, i)
		}
	}
	for at := time.Duration(0); at < p.faults; {
		s = append(s, fault{
			at:    at,
			kind:  kinds[random.IntN(len(kinds))],
			which: random.IntN(1 << 20),
			lasts: 50*time.Millisecond + time.Duration(random.Int64N(int64(5*time.Second))),
			seed:  random.Uint64(),
		})
		at += 100*time.Millisecond + time.Duration(random.Int64N(int64(2*time.Second)))
	}
	return s
}

// misbehave lets the faults happen.
func (w *world) misbehave(s schedule) {
	for _, f := range s {
		f.random = rand.New(rand.NewPCG(f.seed, 2))
		w.after(f.at, func() {
			m := w.machines[f.which%len(w.machines)]
			faultKinds[f.kind].do(w, m, &f)
		})
	}
}

// shrink returns a part of the schedule that still fails, and that mostly fails no more if one of its
// faults is left out: delta debugging (Zeller, Hildebrandt 2002), for at most that many runs.
func shrink(s schedule, runs int, fails func(schedule) bool) schedule {
	for part := len(s); part > 0; {
		shorter := false
		for from := 0; from < len(s) && runs > 0; {
			rest := slices.Concat(s[:from], s[min(from+part, len(s)):])
			runs--
			if fails(rest) {
				s, shorter = rest, true
			} else {
				from += part
			}
		}
		if !shorter {
			part /= 2 // to go over single faults until none can go
		}
	}
	return s
}

func TestShrinkFindsTheFaultsThatMatter(t *testing.T) {
	var all schedule
	for i := range 50 {
		all = append(all, fault{which: i})
	}
	has := func(s schedule, which int) bool {
		return slices.ContainsFunc(s, func(f fault) bool { return f.which == which })
	}
	for name, fails := range map[string]func(schedule) bool{
		"two far apart": func(s schedule) bool { return has(s, 3) && has(s, 44) },
		"the last":      func(s schedule) bool { return has(s, 49) },
		"neighbours":    func(s schedule) bool { return has(s, 24) && has(s, 25) && has(s, 26) },
	} {
		want := 0
		for i := range all {
			without := slices.Concat(all[:i], all[i+1:])
			if !fails(without) {
				want++
			}
		}
		if got := shrink(all, 500, fails); len(got) != want || !fails(got) {
			t.Errorf("%s: %d of %d faults remain, want %d", name, len(got), len(all), want)
		}
	}
	if got := shrink(all, 500, func(schedule) bool { return true }); len(got) != 0 {
		t.Errorf("it fails without faults: %d remain", len(got))
	}
	runs := 0
	shrink(all, 7, func(schedule) bool { runs++; return false })
	if runs != 7 {
		t.Errorf("%d runs, want 7", runs)
	}
}
