//go:build !unix

package main

// openFilesLimit is the limit of open files of this process; this system has none.
func openFilesLimit() (uint64, bool) { return 0, false }
