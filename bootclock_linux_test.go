package lockkeeper

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// readClock is a furtherClock over two clocks that the test sets.
func readClock() (now func() time.Duration, boot, own *time.Duration) {
	boot, own = new(time.Duration), new(time.Duration)
	c := furtherClock{boot: func() time.Duration { return *boot }, own: func() time.Duration { return *own }}
	return c.now, boot, own
}

func TestFurtherClockMeasuresWhateverOneClockMeasures(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][][2]time.Duration{ // by how much boot time and Go's clock advance
		"both go":                            {{minute, minute}, {minute, minute}},
		"the computer sleeps":                {{minute, minute}, {time.Hour, 0}, {minute, minute}},
		"a bubble jumps ahead":               {{time.Microsecond, time.Hour}, {0, minute}},
		"it sleeps after a bubble was ahead": {{0, time.Hour}, {minute, 0}, {minute, 0}},
		"Go's clock goes back, and on":       {{minute, -time.Hour}, {minute, time.Hour + minute}, {minute, minute}},
		"one goes while the other stands":    {{minute, 0}, {0, minute}, {minute, 0}, {0, minute}},
		"a bubble jumps after the sleep":     {{time.Hour, 0}, {0, minute}, {minute, 0}},
		"boot time is ahead by small amounts": {{3 * time.Millisecond, 0}, {3 * time.Millisecond, 0},
			{0, 3 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			now, boot, own := readClock()
			readings := [][3]time.Duration{{now(), 0, 0}}
			for _, step := range steps {
				*boot, *own = *boot+step[0], *own+step[1]
				here := [3]time.Duration{now(), *boot, max(*own, readings[len(readings)-1][2])}
				for _, before := range readings {
					least := max(here[1]-before[1], here[2]-before[2])
					if got := here[0] - before[0]; got < least-clockTolerance {
						t.Errorf("%s passed from %v to %v, want at least %s", got, before, here, least)
					}
				}
				readings = append(readings, here)
			}
		})
	}
}

// The two clocks are read one after the other; the differences must not add up.
func TestFurtherClockIsNotFasterForBeingReadOften(t *testing.T) {
	random := testmode.Rand(t)
	now, boot, own := readClock()
	start, last := now(), now()
	const readings = 100_000
	for i := range time.Duration(readings) {
		*own = i * time.Microsecond
		*boot = *own + time.Duration(random.Int64N(int64(clockTolerance*9/10)))
		here := now()
		if here < last {
			t.Fatalf("it went back from %s to %s", last, here)
		}
		last = here
	}
	if got, want := last-start, *own; got < want-clockTolerance || got > want+clockTolerance {
		t.Errorf("%s passed in %s", got, want)
	}
}
