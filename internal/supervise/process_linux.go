package supervise

import (
	"errors"

	"golang.org/x/sys/unix"
)

// WatchProcess returns a channel that is closed when the process has ended. The
// kernel tells, by a file that is that process and never a later one of the same
// number. Kernels and sandboxes without such files are polled.
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
