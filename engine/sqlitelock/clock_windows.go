package sqlitelock

import (
	"time"

	"golang.org/x/sys/windows"
)

// newBootClock returns the time since the boot, which all processes share and
// which counts while the computer sleeps. It moves in steps of some milliseconds.
func newBootClock() func() (time.Duration, error) {
	return func() (time.Duration, error) { return windows.DurationSinceBoot(), nil }
}

// bootID is empty: a reboot is known by the boot clock, which begins again. If
// it has passed the latest entry by the time the file is used again, the time
// between goes on as if there had been no reboot, and leases end by it.
func bootID() (string, error) { return "", nil }
