//go:build unix

package main

import "syscall"

// openFilesLimit returns the limit of open files of this process.
func openFilesLimit() (uint64, bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true
}
