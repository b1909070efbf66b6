//go:build !linux && !darwin

package disklock

import "errors"

// freeRoom is how many bytes more this user may put on the file system of a folder.
func freeRoom(string) (int64, error) {
	return 0, errors.New("how much room there is can't be told here")
}
