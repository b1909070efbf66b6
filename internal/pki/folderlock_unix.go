//go:build unix

package pki

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder waits until no other process has the folder locked, and locks it until
// unlock is called or this process ends.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		folder.Close()
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return func() { folder.Close() }, nil
}
