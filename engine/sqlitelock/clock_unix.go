//go:build unix && !linux

package sqlitelock

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// newBootClock returns CLOCK_MONOTONIC, which all processes share and which
// counts from the boot. On macOS it goes on while the computer sleeps. On other
// systems it may stand still then: leases live longer by the time of the sleep,
// at the engine and at their holders alike.
func newBootClock() func() (time.Duration, error) {
	return func() (time.Duration, error) {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0, fmt.Errorf("reading the boot clock: %w", err)
		}
		return time.Duration(ts.Nano()), nil
	}
}

// bootID is empty: a reboot is known by the boot clock, which begins again. If
// it has passed the latest entry by the time the file is used again, the time
// between goes on as if there had been no reboot, and leases end by it.
func bootID() (string, error) { return "", nil }
