package main

import (
	"errors"
	"net"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// words is err for people. What an error of the package lockkeeper says for programs (the
// call that failed, the name of its sentinel) is left out where the rest says it.
func words(err error) string {
	var e *lockkeeper.Error
	text := err.Error()
	if !errors.As(err, &e) {
		return text
	}
	return strings.Replace(text, e.Error(), reason(e), 1)
}

// reason is what is wrong, where.
func reason(e *lockkeeper.Error) string {
	detail := e.Detail
	if e.Cause != nil {
		cause := words(e.Cause)
		if dial := dialFailure(e.Cause); dial != nil { // "dial tcp ADDRESS: connect: connection refused"
			why := innermost(dial).Error()
			if dial.Addr != nil {
				why = dial.Addr.String() + ": " + why
			}
			cause, detail = strings.Replace(cause, dial.Error(), why, 1), "can't be reached"
		}
		detail = strings.TrimPrefix(detail+": "+cause, ": ")
	}
	switch {
	case detail == "" || len(e.Blocked) > 0:
		return e.Error()
	case errors.Is(e.Err, lockkeeper.ErrDenied):
		detail = "denied: " + detail
	}
	if e.Reason == lockkeeper.Draining {
		detail = "the server is draining: " + detail
	}
	switch e.Err {
	case lockkeeper.ErrInvalid, lockkeeper.ErrUnsupported, lockkeeper.ErrUnavailable, lockkeeper.ErrDenied:
		if e.Path != "" {
			return string(e.Path) + ": " + detail
		}
		return detail
	}
	return e.Error()
}

// dialFailure is the failure to reach an address that err is about, nil if it is none.
func dialFailure(err error) *net.OpError {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return dial
	}
	return nil
}

// innermost is the cause of all causes, such as the kernel's error without the call's name.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
