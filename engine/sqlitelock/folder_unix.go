//go:build unix

package sqlitelock

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openDirectory opens a directory, and nothing else that is at the path, be it a link to one.
func openDirectory(path string) (*os.File, error) {
	fd, err := untilDone(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openIn opens a file of a directory, and follows no link. To open a pipe waits for nobody.
func openIn(dir *os.File, name string, flag int) (*os.File, error) {
	fd, err := untilDone(func() (int, error) {
		return unix.Openat(int(dir.Fd()), name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	// To os.NewFile a descriptor that does not block is one to poll, which regular files can't be.
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

// untilDone repeats a system call that was interrupted.
func untilDone(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// removeIn removes an entry of a directory that is no directory itself.
func removeIn(dir *os.File, name string) error { return unix.Unlinkat(int(dir.Fd()), name, 0) }

// namesIn lists a directory from its begin, up to a number of entries.
func namesIn(dir *os.File, most int) ([]string, error) {
	again, err := openIn(dir, ".", os.O_RDONLY|unix.O_DIRECTORY) // which has a position of its own
	if err != nil {
		return nil, err
	}
	defer again.Close()
	names, err := again.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
