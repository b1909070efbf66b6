package main

import (
	"errors"
	"net"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// words is err for users. It omits the parts of a lockkeeper.Error that are for programs
// (the failed call, the name of the sentinel) if the rest says the same.
func words(err error) string {
	var e *lockkeeper.Error
	text := err.Error()
	if !errors.As(err, &e) {
		return text
	}
	return strings.Replace(text, e.Error(), reason(e), 1)
}

// reason is the detail of e, with its path.
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

// dialFailure returns the failed dial in the chain of err, or nil.
func dialFailure(err error) *net.OpError {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return dial
	}
	return nil
}

// innermost returns the last error of the chain, such as the kernel's error without the call.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
