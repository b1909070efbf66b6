//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayWrite reports whether this user may make files in a folder.
func mayWrite(folder string) bool { return unix.Access(folder, unix.W_OK|unix.X_OK) == nil }

// ownerIDs returns the owner and the group of the file at path.
func ownerIDs(path string) (uid, gid int, known bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	s, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}
