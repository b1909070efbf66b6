package dbfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper"
)

// A Lock keeps other processes out of a folder.
type Lock struct{ file *os.File }

// LockFolder makes the folder if there is none, and locks it for this process, without waiting. It
// writes process and host into the lock file, for people. path is absolute. If another process has
// the lock, the error is an ErrUnavailable that names it.
func LockFolder(dir string) (path string, lock Lock, err error) {
	if path, err = filepath.Abs(dir); err != nil {
		return "", Lock{}, lockkeeper.Invalid("%s: %v", dir, err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return "", Lock{}, lockkeeper.Invalid("%s is a file: name a directory that is new, or one of lockkeeper's", dir)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", Lock{}, unavailable(err, "no directory %s", dir)
	}
	f, err := os.OpenFile(lockPath(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", Lock{}, unavailable(err, "%s can't be locked", dir)
	}
	lock = Lock{f}
	if err := lockAlone(f); err != nil {
		defer f.Close()
		if errors.Is(err, errInUse) {
			return "", Lock{}, unavailable(err, "%s is in use by %s: only one process may have it open; others reach it "+
				"through a server", dir, lock.owner())
		}
		return "", Lock{}, unavailable(err, "%s can't be locked", dir)
	}
	if err := f.Truncate(0); err == nil {
		host, _ := os.Hostname()
		_, _ = f.WriteAt(fmt.Appendf(nil, "pid %d\nhost %s\n", os.Getpid(), host), 0)
	}
	return path, lock, nil
}

// LockCopied locks the folder, if it has a lock file, while the caller copies it. If a process has
// the folder, inUse names it.
func LockCopied(path string) (lock Lock, inUse string, err error) {
	f, err := os.Open(lockPath(path))
	if errors.Is(err, fs.ErrNotExist) { // a copy without the lock file
		return Lock{}, "", nil
	}
	if err != nil {
		return Lock{}, "", err
	}
	lock = Lock{f}
	if err := lockAlone(f); err != nil {
		defer f.Close()
		if errors.Is(err, errInUse) {
			return Lock{}, lock.owner(), nil
		}
		return Lock{}, "", err
	}
	return lock, "", nil
}

// Unlock lets other processes have the folder.
func (l Lock) Unlock() {
	if l.file != nil {
		l.file.Close()
	}
}

func lockPath(folder string) string { return filepath.Join(folder, "lock") }

var errInUse = errors.New("in use")

// owner describes the process that the lock file names, with its host if it is another one.
func (l Lock) owner() string {
	text := make([]byte, 300)
	n, _ := l.file.ReadAt(text, 0)
	var pid int
	var host string
	switch fields, _ := fmt.Sscanf(string(text[:n]), "pid %d\nhost %s\n", &pid, &host); fields {
	case 1, 2:
		if own, err := os.Hostname(); fields == 2 && (err != nil || host != own) {
			return fmt.Sprintf("process %d of host %q", pid, host)
		}
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

// unavailable returns an ErrUnavailable with this detail.
func unavailable(cause error, format string, args ...any) *lockkeeper.Error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(format, args...), Cause: cause}
}
