//go:build !linux

package dbfolder

// FileID returns 0: it is not known on this system what a file keeps and a copy does not have.
func FileID(string) uint64 { return 0 }
