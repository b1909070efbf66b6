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
		// Several servers have an error each, in a line each.
		dials := dialFailures(e.Cause)
		if len(dials) > 1 {
			cause = strings.ReplaceAll(cause, "\n", "; ")
		}
		for _, dial := range dials { // "dial tcp ADDRESS: connect: connection refused"
			why := innermost(dial).Error()
			if dial.Addr != nil {
				why = dial.Addr.String() + ": " + why
			}
			cause = strings.Replace(cause, dial.Error(), why, 1)
			if !errors.Is(e.Err, lockkeeper.ErrDenied) { // there the detail has the remedy
				detail = "can't be reached"
			}
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

// dialFailures returns the failed dials that err wraps.
func dialFailures(err error) []*net.OpError {
	if dial, ok := err.(*net.OpError); ok && dial.Op == "dial" {
		return []*net.OpError{dial}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return dialFailures(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*net.OpError
		for _, one := range e.Unwrap() {
			all = append(all, dialFailures(one)...)
		}
		return all
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
