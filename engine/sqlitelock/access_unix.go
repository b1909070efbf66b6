//go:build unix

package sqlitelock

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// access says why this process may not read and write what is at path, or not
// make files in it; nil if it may.
func access(path string) error {
	mode := uint32(unix.R_OK | unix.W_OK)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		mode = unix.W_OK | unix.X_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}

// user says as whom this process acts.
func user() string { return fmt.Sprintf("uid %d", os.Geteuid()) }

// ownership says whose a file is.
func ownership(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%s of uid %d, gid %d", info.Mode(), s.Uid, s.Gid)
	}
	return info.Mode().String()
}

// giveTo makes f belong to whom the file does that info describes, if this process
// is root: what root makes beside a user's file would else keep the user out.
// SQLite does the same with what it makes. Nobody else may give files away.
func giveTo(f *os.File, info os.FileInfo) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
