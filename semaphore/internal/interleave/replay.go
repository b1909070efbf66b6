package interleave

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// schedule lists the goroutines that ran, one after the other, each with a number of operations.
type schedule []turns

type turns struct {
	g     int
	n     int  // may be 0 if calls
	calls bool // it begins with a call
}

// more returns the schedule with one more operation of g at its end.
func (s schedule) more(g int) schedule {
	if last := len(s) - 1; last >= 0 && s[last].g == g {
		s[last].n++
		return s
	}
	return append(s, turns{g: g, n: 1})
}

// String writes a schedule as letters and numbers: A3,b1 is three operations of
// the first goroutine and then one of the second, which begins a call.
func (s schedule) String() string {
	if len(s) == 0 {
		return "A0"
	}
	var parts []string
	for _, t := range s {
		first := 'A'
		if t.calls {
			first = 'a'
		}
		parts = append(parts, fmt.Sprintf("%c%d", first+rune(t.g), t.n))
	}
	return strings.Join(parts, ",")
}

func parseSchedule(text string) (s schedule, err error) {
	for part := range strings.SplitSeq(text, ",") {
		const letters = "ABCDEFGHIJKLMNOP"
		g, n := -1, -1
		if part != "" {
			g = strings.Index(letters, strings.ToUpper(part[:1]))
			n, err = strconv.Atoi(part[1:])
		}
		if g < 0 || n < 0 || err != nil {
			return nil, fmt.Errorf("schedule: %q is not a letter and a number, as in A3,b1", part)
		}
		s = append(s, turns{g, n, part[0] != letters[g]})
	}
	return s, nil
}

// following is a schedule under replay.
type following struct {
	rest   schedule
	left   int  // operations left of the current turn
	g      int  // the goroutine of the current turn
	begins bool // the current turn begins a call
}

// pick follows the schedule. After its end goroutines run one after the other.
func (f *following) pick(w *World, can mask, by *goroutine) *goroutine {
	f.begins = false
	switch {
	case f.left > 0:
	case len(f.rest) > 0:
		f.g, f.left, f.begins = f.rest[0].g, f.rest[0].n, f.rest[0].calls
		f.rest = f.rest[1:]
	case by != nil && can&(1<<by.index) != 0:
		f.g, f.begins = by.index, true
	default:
		f.g, f.begins = bits.TrailingZeros16(uint16(can)), true
	}
	f.left--
	if f.g >= len(w.goroutines) || can&(1<<f.g) == 0 {
		w.failure = fmt.Sprintf("the schedule does not fit: after %s goroutine %c can't go on", w.ran, 'A'+f.g)
		return nil
	}
	return w.goroutines[f.g]
}

// Replay runs the program once under a schedule that an exploration reported, and returns its
// story.
func Replay(p *Program, text string) (*Failure, error) {
	s, err := parseSchedule(text)
	if err != nil {
		return nil, err
	}
	return replay(p, s, text), nil
}

func replay(p *Program, s schedule, text string) *Failure {
	x := newExplorer(p)
	defer x.close()
	x.warmUp() // as Explore does, so that both know the same last uses
	x.everyChoice, x.describe = true, true
	x.follow = &following{rest: s}
	w := x.execute()
	return &Failure{What: w.failure, Schedule: text, Story: w.story.String()}
}

// Bounds of the search for a schedule with few switches.
const (
	maxSwitches  = 6
	maxShortRuns = 100_000
)

// failed searches for a failing schedule with few switches, and returns it with its story.
func (x *explorer) failed(w *World) Result {
	result := x.result
	for x.bound = 0; x.bound < maxSwitches; {
		if shorter := x.pass(maxShortRuns); shorter != nil {
			w = shorter
			break
		}
		if x.result.Partial {
			break
		}
		if !x.outdated {
			x.bound++
		}
	}
	text := w.ran.String()
	result.Failure = replay(x.program, w.ran, text)
	if result.Failure.What == "" {
		result.Failure.What = w.failure + " (but not when it is replayed: the program is not deterministic)"
	}
	return result
}
