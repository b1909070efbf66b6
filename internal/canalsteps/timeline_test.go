package canalsteps

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// limits are those of five callers: A, B and E know of one resource of three
// slots, and C and D of two.
var limits = [5]uint8{3, 3, 6, 6, 3}

func timeline(andRelease bool) (programs [][]call) {
	for i, limit := range limits {
		program := []call{take(uint8(i+1), "a", 1, limit)}
		if andRelease {
			program = append(program, give(uint8(i+1)))
		}
		programs = append(programs, program)
	}
	return programs
}

// holders names who holds a slot of the timeline.
func holders(st *state) string {
	var b strings.Builder
	for i := range limits {
		if st.truth[i+1] == reallyHeld {
			b.WriteByte('A' + byte(i))
		}
	}
	return b.String()
}

// TestTimeline starts the five callers at once. In whatever order their steps are
// done, it must end as it would if they had called one after the other, in some
// order; and each such end must come about.
func TestTimeline(t *testing.T) {
	want := map[string]bool{}
	eachOrder(nil, func(order []int) {
		held, count := [5]bool{}, 0
		for _, i := range order {
			if count < int(limits[i]) {
				held[i] = true
				count++
			}
		}
		var b strings.Builder
		for i := range held {
			if held[i] {
				b.WriteByte('A' + byte(i))
			}
		}
		want[b.String()] = true
	})
	x := explore(scope{programs: timeline(false), stay: true}.sized())
	if x.fault.text != "" {
		t.Fatal(x.story())
	}
	got := map[string]bool{}
	for _, n := range x.ends {
		st := x.unpack(x.states.values[n])
		got[holders(&st)] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("at the end hold %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	t.Logf("%d states; at the end hold %v", len(x.states.values), slices.Sorted(maps.Keys(got)))
}

// eachOrder calls f with each order of the five callers.
func eachOrder(begun []int, f func([]int)) {
	if len(begun) == len(limits) {
		f(begun)
		return
	}
	for i := range limits {
		if !slices.Contains(begun, i) {
			eachOrder(append(slices.Clone(begun), i), f)
		}
	}
}

// TestTimelineOfTheMark plays the timeline in the order B, A, C, E, D to a counter
// with a mark at the limit: it stands at 5 with 4 held. When all have released, it
// stands at 1, and who knows of one slot never gets it.
func TestTimelineOfTheMark(t *testing.T) {
	const A, B, C, D, E = 0, 1, 2, 3, 4
	programs := timeline(true)
	programs[E] = append(programs[E], take(6, "a", 1, 1))
	x := explore(scope{programs: programs, plant: plantMarker, stay: true,
		ignored: ignoring(neverOver, neverUnder, rightOrdinal, rightCount)}.sized())

	told := x.play(schedule{B, A, C, E, D})
	if n, held := told.state.buckets[0], holders(&told.state); n != 5 || held != "ABCD" {
		t.Errorf("the counter is %d, and %s hold, want 5 and ABCD:\n%s", n, held, strings.Join(told.lines, "\n"))
	}
	x.ignored &^= ignoring(neverUnder)
	told = x.play(schedule{B, A, C, E, D, D, C, A, B, E, E})
	if n, held := told.state.buckets[0], holders(&told.state); n == 0 || held != "" || x.fault.rule != neverUnder {
		t.Errorf("the counter is %d, %q hold, and the last one was told the truth: %v", n, held, x.fault)
	}
	t.Log("\n" + strings.Join(told.lines, "\n") + "\n" + x.fault.text)
}
