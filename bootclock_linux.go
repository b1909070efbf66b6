package lockkeeper

import (
	"time"

	"golang.org/x/sys/unix"
)

// NewBootClock returns a clock that only goes forward and goes on while the
// computer sleeps, for who counts a lease by itself: Go's own timers and
// time.Since stand still then, so a lease measured with them would outlive its
// end at the engine (R12). Where there is no such clock (here it is
// CLOCK_BOOTTIME) it is Go's. It is safe for concurrent use.
func NewBootClock() func() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return monotonicClock()
	}
	return func() time.Duration {
		var ts unix.Timespec
		// It worked above, and it can fail only for a clock that is unknown.
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
		return time.Duration(ts.Nano())
	}
}
