package lockkeeper

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// NewBootClock returns a clock that only goes forward and goes on while the computer sleeps, for
// programs that count a lease by themselves. Go's own timers and time.Since stand still during
// sleep, so a lease measured with them would outlive its end at the engine (R12). The clock also
// advances when time.Since jumps ahead and CLOCK_BOOTTIME does not, as in a testing/synctest
// bubble. On a system without CLOCK_BOOTTIME it is Go's clock. It is safe for concurrent use.
func NewBootClock() func() time.Duration {
	var start unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &start) != nil {
		return monotonicClock()
	}
	boot := func() time.Duration {
		var ts unix.Timespec
		// This fails only for an unknown clock, and the call above has succeeded.
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		return time.Duration(ts.Nano() - start.Nano())
	}
	began := time.Now()
	own := func() (own, wall time.Duration) {
		now := time.Now()
		return now.Sub(began), time.Duration(now.UnixNano())
	}
	return (&furtherClock{boot: boot, own: own}).now
}

const (
	// clockTolerance is the largest difference between two clocks that counts as an error of
	// reading and not as time that only one of them measured.
	clockTolerance = time.Millisecond
	// bootEvery bounds the time that the computer runs between two readings of the boot clock.
	bootEvery = 10 * time.Millisecond
)

// furtherClock combines two clocks. Between any two readings it advances as much as the clock that
// advanced more, less at most 2*clockTolerance. During sleep only the boot clock goes on; when a
// testing/synctest bubble jumps ahead, only Go's clock does. So a lease that a client counts by
// this clock ends there before it ends at an engine that counts by either clock.
//
// A reading of the boot clock is a system call, which takes several times as long as a reading of
// Go's clocks. It is left out while Go's monotonic clock and the clock of the day agree that the
// computer did not sleep: sleep moves the latter only. They would agree wrongly if the clock of the
// day was set back by exactly the time slept, and then for bootEvery at most.
type furtherClock struct {
	boot func() time.Duration
	own  func() (own, wall time.Duration) // Go's clock, and the clock of the day

	mu     sync.Mutex
	at     time.Duration // the furthest reading of own
	lead   time.Duration // the smallest boot-at since more last grew
	more   time.Duration // the time that boot measured and own did not
	read   bool          // boot was read
	readAt time.Duration // own when it was read last
	ahead  time.Duration // wall-own then
}

func (c *furtherClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, wall := c.own() // before boot: then sleep that ahead contains is in boot, too
	ahead, since := wall-own, own-c.readAt
	if c.read && since >= 0 && since < bootEvery && (ahead-c.ahead).Abs() < clockTolerance {
		c.at = max(c.at, own)
		return c.at + c.more
	}
	c.read, c.readAt, c.ahead = true, own, ahead
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

// readings reads the boot clock and Go's clock within clockTolerance/2, unless the thread is
// interrupted at every try.
func (c *furtherClock) readings() (boot, own time.Duration) {
	for range 3 {
		before, _ := c.own()
		boot = c.boot()
		own, _ = c.own()
		if own-before < clockTolerance/2 {
			break
		}
	}
	return boot, own
}
