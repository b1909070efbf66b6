//go:build !unix

package main

// openFilesLimit is how many files this process may have open: here there is no such limit.
func openFilesLimit() (uint64, bool) { return 0, false }
