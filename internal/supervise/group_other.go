//go:build unix && !linux

package supervise

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the same to all processes. On macOS it counts while the computer
// sleeps; on other systems it may stand still then.
const bootClock = unix.CLOCK_MONOTONIC

// group is a process group.
type group struct {
	number int
	began  uint64 // 0: this system does not show the start time of its leader
}

func openGroup(number int) group { return group{number: number} }

// signal sends s to all of the group.
func (g group) signal(s syscall.Signal) error { return unix.Kill(-g.number, s) }

// runs reports whether any process of the group is left.
func (g group) runs() bool { return !errors.Is(g.signal(0), unix.ESRCH) }

// mayDescend returns false: on this system a guard sees only the group and the lifeline.
func mayDescend(uint64, int) bool { return false }

func waitReadable(in int, until time.Duration) { pollReadable(in, until) }

// awaitEnd returns at once: on this system the caller reaps the process when it ends.
func awaitEnd(int) (bool, error) { return false, nil }
