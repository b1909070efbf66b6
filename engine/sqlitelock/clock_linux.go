package sqlitelock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newBootClock returns a clock that all processes of this computer share, that
// only goes forward, and that counts while the computer sleeps: CLOCK_BOOTTIME.
//
// In a time namespace that clock has an offset. Processes outside may use the same file, so the
// clock subtracts the offset.
func newBootClock() func() (time.Duration, error) {
	offset := namespaceOffset()
	return func() (time.Duration, error) {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			return 0, fmt.Errorf("reading the boot clock: %w", err)
		}
		return time.Duration(ts.Nano()) - offset, nil
	}
}

// namespaceOffset is what this process's time namespace adds to CLOCK_BOOTTIME;
// 0 where the kernel knows no such namespaces.
func namespaceOffset() time.Duration {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var seconds, nanoseconds int64
		if n, _ := fmt.Sscan(line, &name, &seconds, &nanoseconds); n == 3 && name == "boottime" {
			return time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
		}
	}
	return 0
}

// bootID names this run of the computer.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
