//go:build unix

package sqlitelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// kernelKnows says that the kernel can tell when all processes of a session are dead.
const kernelKnows = true

var errFileLocked = errors.New("the file is locked")

// lockFile locks f without waiting: exclusively as its owner, or shared, to find out whether it has
// an owner. The lock belongs to the open file, not to the process, so a child that inherits f has
// it too.
func lockFile(f *os.File, owner bool) error {
	how := unix.LOCK_SH
	if owner {
		how = unix.LOCK_EX
	}
	err := flock(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errFileLocked
	}
	return err
}

// awaitFree returns nil when nobody has the owner's lock on f any more. It
// blocks, and can't be interrupted.
func awaitFree(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
