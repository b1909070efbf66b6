//go:build !unix

package disklock

import "os"

// lockAlone does nothing: here SQLite's own lock, which is taken once and kept, is
// what keeps others out.
func lockAlone(*os.File) error { return nil }
