package sqlitelock

import (
	"fmt"
	"io/fs"
	"os"
)

// actor is the user as whom this process uses a file: its own user, or the file's owner if this
// process is root.
type actor struct {
	uid, gid int
	other    bool // not the user of this process
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

// do runs work as a, and returns when it has finished.
func (a actor) do(work func()) error {
	if !a.other {
		work()
		return nil
	}
	done := make(chan error)
	go func() {
		end, err := a.become()
		if err == nil {
			work()
			end()
		}
		done <- err
	}()
	return <-done
}

// trusted reports whether a file or directory beside the database belongs to a user that may
// control the database: its owner, this user, root, or, if the directory hands the database's group
// down, a member of that group.
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

// handsDown reports whether new files in a directory are for its group: the group may write to the
// directory, and files inherit the group (setgid).
func handsDown(directory fs.FileInfo) bool {
	const write = 0o020
	return directory.Mode()&fs.ModeSetgid != 0 && directory.Mode()&write != 0
}

// inherits reports whether the database is for the group of its directory, so that any member of
// the group may create the files beside it.
func inherits(directory string, database fs.FileInfo) bool {
	info, err := os.Stat(directory)
	if err != nil || !handsDown(info) {
		return false
	}
	_, gid, known := owner(info)
	_, group, _ := owner(database)
	return known && gid == group
}

// shareWith gives a new file or directory that mode, whatever the umask, and the database's group
// if the mode admits the group.
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

// kindOf names the kind of file.
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
