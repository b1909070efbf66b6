//go:build !linux && !darwin

package disklock

import "errors"

// freeRoom returns the number of bytes that this user may add to the file system of a folder.
func freeRoom(string) (int64, error) {
	return 0, errors.New("how much room there is can't be told here")
}
