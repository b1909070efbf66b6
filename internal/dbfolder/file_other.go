//go:build !linux

package dbfolder

import (
	"errors"
	"os"
)

// FileID returns 0: it is not known on this system what a file keeps and a copy does not have.
func FileID(string) uint64 { return 0 }

// syncsData: SQLite itself syncs each commit.
const syncsData = false

func syncData(*os.File) error { return errors.ErrUnsupported }
