package sqlitelock

import (
	"fmt"
	"io/fs"
	"os"
)

// actor is the user as whom this process uses a file: itself, or, if it is root and the file
// another user's, that user.
type actor struct {
	uid, gid int
	other    bool // not the user as whom the process runs
}

func (a actor) String() string {
	if a.other {
		return fmt.Sprintf("uid %d, as whom root uses another user's file", a.uid)
	}
	return user()
}

// owns reports whether a file belongs to this user.
func (a actor) owns(info fs.FileInfo) bool {
	uid, _, known := owner(info)
	return !known || uid == a.uid
}

// do has work done by a, and returns when it is done.
func (a actor) do(work func()) error {
	if !a.other {
		work()
		return nil
	}
	done := make(chan error)
	go func() {
		err := a.become()
		if err == nil {
			work()
		}
		done <- err
	}()
	return <-done
}

// trusted reports whether a file or directory beside the database belongs to a user who may
// decide about the database: its owner, this user, root, or, where a directory hands the
// database's group down, that group.
func trusted(info, database fs.FileInfo, me actor) bool {
	uid, gid, known := owner(info)
	if !known {
		return true
	}
	owns, group, _ := owner(database)
	if uid == owns || uid == me.uid || uid == 0 {
		return true
	}
	const write = 0o020
	shared := database.Mode()&write != 0 && info.Mode()&write != 0 && gid == group
	return shared && (!info.IsDir() || info.Mode()&fs.ModeSetgid != 0)
}

// handsDown reports whether files that are made in a directory are for its group: it may write
// there, and the files inherit it (setgid).
func handsDown(directory fs.FileInfo) bool {
	const write = 0o020
	return directory.Mode()&fs.ModeSetgid != 0 && directory.Mode()&write != 0
}

// inherits reports whether the database is for the group of its directory, so that any of its
// users may make what lies beside it.
func inherits(directory string, database fs.FileInfo) bool {
	info, err := os.Stat(directory)
	if err != nil || !handsDown(info) {
		return false
	}
	_, gid, known := owner(info)
	_, group, _ := owner(database)
	return known && gid == group
}

// shareWith gives a new file, or directory, that mode whatever the umask, and the group of the
// database if its group is to use it.
func shareWith(f *os.File, database fs.FileInfo, mode fs.FileMode) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const group = 0o060
	_, gid, known := owner(info)
	if _, want, _ := owner(database); known && mode&group != 0 && gid != want {
		if err := f.Chown(-1, want); err != nil {
			return err
		}
	}
	return f.Chmod(mode)
}

// kindOf says what is at a path.
func kindOf(info fs.FileInfo) string {
	switch info.Mode().Type() {
	case 0:
		return "a file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}
