//go:build linux || darwin

package disklock

import "golang.org/x/sys/unix"

// freeRoom is how many bytes more this user may put on the file system of a folder.
func freeRoom(folder string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
