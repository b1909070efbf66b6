package lockkeeper

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// NewBootClock returns a clock that only goes forward and goes on while the computer sleeps, for
// programs that count a lease by themselves. Go's own timers and time.Since stand still then, so
// a lease measured with them would outlive its end at the engine (R12). The clock goes on too
// when time.Since jumps ahead and CLOCK_BOOTTIME does not, as in a testing/synctest bubble. Where
// the system has no CLOCK_BOOTTIME it is Go's clock. It is safe for concurrent use.
func NewBootClock() func() time.Duration {
	var start unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &start) != nil {
		return monotonicClock()
	}
	boot := func() time.Duration {
		var ts unix.Timespec
		// It worked above, and it can fail only for a clock that is unknown.
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		return time.Duration(ts.Nano() - start.Nano())
	}
	return (&furtherClock{boot: boot, own: monotonicClock()}).now
}

// clockTolerance is how far two readings of one moment may lie apart without counting as time
// that one clock measured and the other did not.
const clockTolerance = time.Millisecond

// furtherClock measures time by two clocks, and never less than either of them: between any two
// readings it advances by what the clock says that advanced more, less at most clockTolerance.
// While the computer sleeps only the boot clock goes on; while a testing/synctest bubble jumps
// ahead, only Go's own. Whichever an engine counts by, a lease counted so ends here first.
type furtherClock struct {
	boot, own func() time.Duration

	mu   sync.Mutex
	at   time.Duration // the furthest reading of own
	lead time.Duration // how far boot was ahead of own when it was least so, or when that was last added
	more time.Duration // what boot measured and own did not
}

func (c *furtherClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	boot, own := c.readings()
	c.at = max(c.at, own)
	switch lead := boot - c.at; {
	case lead < c.lead:
		c.lead = lead
	case lead > c.lead+clockTolerance:
		c.more += lead - c.lead
		c.lead = lead
	}
	return c.at + c.more
}

// readings are of one moment, unless this thread keeps being interrupted between them.
func (c *furtherClock) readings() (boot, own time.Duration) {
	for range 3 {
		before := c.own()
		boot, own = c.boot(), c.own()
		if own-before < clockTolerance/2 {
			break
		}
	}
	return boot, own
}
