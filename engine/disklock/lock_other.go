//go:build !unix

package disklock

import "os"

// lockAlone does nothing: on this system only SQLite's own lock, which openStore takes and keeps,
// excludes other processes.
func lockAlone(*os.File) error { return nil }
