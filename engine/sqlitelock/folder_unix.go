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

// openDirectory opens a directory. It refuses everything else at the path, links included.
func openDirectory(path string) (*os.File, error) {
	fd, err := untilDone(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openIn opens a file of a directory. It follows no link, and does not block on a pipe.
func openIn(dir *os.File, name string, flag int) (*os.File, error) {
	fd, err := untilDone(func() (int, error) {
		return unix.Openat(int(dir.Fd()), name, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	// os.NewFile would poll a descriptor that does not block, and regular files can't be polled.
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

// removeIn removes an entry of a directory, unless the entry is a directory itself.
func removeIn(dir *os.File, name string) error { return unix.Unlinkat(int(dir.Fd()), name, 0) }

// namesIn lists a directory from its start, up to a number of entries.
func namesIn(dir *os.File, most int) ([]string, error) {
	again, err := openIn(dir, ".", os.O_RDONLY|unix.O_DIRECTORY) // a descriptor with its own position
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
