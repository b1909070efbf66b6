//go:build !linux

package sqlitelock

import "errors"

// become has this goroutine act as a, which only Linux allows.
func (a actor) become() error {
	if !a.other {
		return nil
	}
	return a.cantBecome(errors.New("only Linux lets a thread do that"))
}
