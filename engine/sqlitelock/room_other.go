//go:build !linux && !darwin

package sqlitelock

import (
	"errors"
	"io/fs"
)

// freeRoom is how much more this user may put on the file system of a folder.
func freeRoom(string) (bytes, files int64, err error) {
	return 0, 0, errors.New("how much room there is can't be told here")
}

// links returns 1, since the number of names is not known here.
func links(fs.FileInfo) int { return 1 }
