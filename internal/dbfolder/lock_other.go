//go:build !unix

package dbfolder

import "os"

// lockAlone does nothing: on this system only SQLite's own lock, which Use.Alone takes and keeps,
// excludes other processes.
func lockAlone(*os.File) error { return nil }
