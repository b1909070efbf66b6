//go:build !linux

package sqlitelock

import "errors"

// become makes this goroutine act as a until it calls end. Only Linux allows that.
func (a actor) become() (end func(), err error) {
	if !a.other {
		return func() {}, nil
	}
	return nil, a.cantBecome(errors.New("only Linux lets a thread do that"))
}
