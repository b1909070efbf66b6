//go:build unix

package pki

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder waits until no other process has the folder locked. It locks the folder until the call
// of unlock or the end of this process.
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

// syncFolder makes a rename in the folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
