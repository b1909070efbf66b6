//go:build unix

package dbfolder

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockAlone locks f for this process, without waiting. It returns errInUse if another process has
// the lock.
func lockAlone(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return errInUse
		default:
			return err
		}
	}
}
