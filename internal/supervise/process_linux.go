package supervise

import (
	"errors"

	"golang.org/x/sys/unix"
)

// WatchProcess returns a channel that is closed when the process has ended. A pidfd stands for that
// process, and never for a later one of the same number. Without pidfds it polls. It returns
// [ErrNoProcess] if there is no such process.
func WatchProcess(pid int) (<-chan struct{}, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, ErrNoProcess
	case err != nil:
		return pollProcess(pid)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 {
				return
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				awaitNone(pid) // an error is not the end
				return
			}
		}
	}()
	return ended, nil
}
