//go:build !linux

package sqlitelock

import "errors"

// become makes this goroutine act as a. Only Linux allows that.
func (a actor) become() error {
	if !a.other {
		return nil
	}
	return a.cantBecome(errors.New("only Linux lets a thread do that"))
}
