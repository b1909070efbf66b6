//go:build linux || darwin

package disklock

import "golang.org/x/sys/unix"

// freeRoom returns the number of bytes that this user may add to the file system of a folder.
func freeRoom(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
