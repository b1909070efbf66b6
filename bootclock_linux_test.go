package lockkeeper

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// clocks are a furtherClock, and those below it, which the test sets.
type clocks struct {
	furtherClock
	boot, own, wall time.Duration
	read            int // how often boot was read
}

func newClocks() *clocks {
	c := &clocks{wall: 50 * 365 * 24 * time.Hour}
	c.furtherClock.boot = func() time.Duration { c.read++; return c.boot }
	c.furtherClock.own = func() (own, wall time.Duration) { return c.own, c.wall }
	return c
}

// advance advances boot time and Go's clock. The clock of the day follows the computer's sleep, and
// the jumps of a bubble.
func (c *clocks) advance(boot, own time.Duration) {
	c.boot, c.own, c.wall = c.boot+boot, c.own+own, c.wall+max(boot, own)
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
			c := newClocks()
			readings := [][3]time.Duration{{c.now(), 0, 0}}
			for _, step := range steps {
				c.advance(step[0], step[1])
				here := [3]time.Duration{c.now(), c.boot, max(c.own, readings[len(readings)-1][2])}
				for _, before := range readings {
					least := max(here[1]-before[1], here[2]-before[2])
					if got := here[0] - before[0]; got < least-2*clockTolerance {
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
	c := newClocks()
	start, last := c.now(), c.now()
	const readings = 100_000
	for i := range time.Duration(readings) {
		c.own = i * time.Microsecond
		c.boot = c.own + time.Duration(random.Int64N(int64(clockTolerance*9/10)))
		c.wall = c.own + time.Duration(random.Int64N(int64(clockTolerance*9/10)))
		here := c.now()
		if here < last {
			t.Fatalf("it went back from %s to %s", last, here)
		}
		last = here
	}
	if got, want := last-start, c.own; got < want-clockTolerance || got > want+clockTolerance {
		t.Errorf("%s passed in %s", got, want)
	}
}

// Sleep is noticed by the next reading at any moment, also while boot time is not read otherwise.
// The clock of the day may be set at any time: if it hides the sleep exactly, the clock notices
// after bootEvery.
func TestFurtherClockReadsBootTimeWhenItMatters(t *testing.T) {
	random := testmode.Rand(t)
	c := newClocks()
	c.now()
	for range 1000 {
		c.advance(time.Microsecond, time.Microsecond)
		c.now()
	}
	if c.read != 1 {
		t.Errorf("boot time was read %d times within a millisecond, want once", c.read)
	}
	before, boot := c.now(), c.boot
	c.advance(time.Minute, -time.Hour) // as at the beginning of a bubble, whose clocks are both behind
	c.wall -= time.Hour + time.Minute
	if passed := c.now() - before; passed < c.boot-boot-2*clockTolerance {
		t.Errorf("%s passed while Go's clocks went back, want %s", passed, c.boot-boot)
	}
	for range 10_000 {
		before, boot := c.now(), c.boot
		run := time.Duration(random.Int64N(int64(2 * bootEvery)))
		c.advance(run, run)
		slept, set := time.Duration(random.Int64N(int64(time.Hour))), time.Duration(0)
		switch random.IntN(3) {
		case 0:
			if set = time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour; (slept + set).Abs() < clockTolerance {
				set = 0
			}
		case 1: // hidden
			set = -slept
			c.wall += set
			c.advance(slept, 0)
			c.now()
			slept, set = 0, 0
			c.advance(bootEvery, bootEvery)
		}
		c.advance(slept, 0)
		c.wall += set
		if passed := c.now() - before; passed < c.boot-boot-2*clockTolerance {
			t.Fatalf("%s passed, want at least %s", passed, c.boot-boot)
		}
	}
}
