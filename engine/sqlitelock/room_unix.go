//go:build linux || darwin

package sqlitelock

import (
	"io/fs"
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeRoom returns how many bytes and how many files this user may still put on the file system of
// a folder. Some file systems don't count files.
func freeRoom(folder string) (bytes, files int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	files = int64(s.Ffree)
	if s.Files == 0 {
		files = math.MaxInt64
	}
	return int64(s.Bavail) * int64(s.Bsize), files, nil
}

// links returns the number of names (hard links) of a file.
func links(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Nlink)
	}
	return 1
}
