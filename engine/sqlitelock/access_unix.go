//go:build unix

package sqlitelock

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// access returns an error unless this thread may read and write the file at path, or create files
// in the directory at path.
func access(path string) error {
	mode := uint32(unix.R_OK | unix.W_OK)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		mode = unix.W_OK | unix.X_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}

// user names the user of this process.
func user() string { return fmt.Sprintf("uid %d", os.Geteuid()) }

// owner returns the owner and the group of a file.
func owner(info fs.FileInfo) (uid, gid int, known bool) {
	s, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}
