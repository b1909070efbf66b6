package lockkeeper

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors to act on, with errors.Is. A client returns an [*Error], which has the evidence
// beside one of these.
var (
	// ErrInvalid: the request is invalid; the message says what is wrong, where, and what would be
	// right. A refused request changes nothing, and repeating it won't help.
	ErrInvalid = errors.New("invalid request")
	// ErrUnsupported: this engine does not claim that feature, see [Guarantees].
	ErrUnsupported = errors.New("not supported by this engine")
	// ErrDenied: the caller has no right to the operation.
	ErrDenied = errors.New("denied")
	// ErrNotAcquired: the lock is taken, and the time to wait for it is over.
	ErrNotAcquired = errors.New("not acquired")
	// ErrDeadlock: the wait could never have ended; the message describes the deadlock cycle. It is
	// also an [ErrNotAcquired].
	ErrDeadlock = errors.New("deadlock")
	// ErrLost: the lock is no longer held; a [Reason] says why.
	ErrLost = errors.New("lock lost")
	// ErrNotHeld: there is nothing to release or end.
	ErrNotHeld = errors.New("not held")
	// ErrSession: the engine does not know the session under this epoch. Attach again, and name the
	// claims that the client still wants. Of Attach: the session is open under another epoch than
	// Session.Epoch; Error.Epoch is the open one, and Attach has changed nothing.
	ErrSession = errors.New("session is not attached")
	// ErrUnavailable: the engine could not be reached or did not answer. The request may have taken
	// effect; repeating it with the same ids is safe (R16).
	ErrUnavailable = errors.New("engine unavailable")
)

// Error is the one error type of this package: the operation, the sentinel to act on, and the
// evidence.
type Error struct {
	Op       string        // the operation, such as "lock" or "renew"
	Path     Path          // the first path concerned, if any
	Err      error         // one of the sentinel errors above
	Reason   Reason        // why the claim ended, if it did
	Detail   string        // what is wrong and what would be right, for people
	Blocked  []Blocker     // the blockers, if there are any
	Position int           // position in line when the wait ended, counted from 1; 0 if none
	ETA      time.Duration // estimate of the rest of the wait (R17); 0 if unknown
	// of an Attach that was refused with ErrSession: the epoch under which the session is open
	// (R19)
	Epoch uint64
	Stale time.Duration // of a List with Query.Stale: the age of the statuses yielded; 0: it yielded none
	Cause error         // the underlying error, if there is one
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Path != "" {
			fmt.Fprintf(&b, " %s", e.Path)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Err.Error())
	if e.Reason != NoReason && e.Reason.String() != e.Err.Error() {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	for i, by := range e.Blocked {
		if i == 3 {
			least := ""
			if len(e.Blocked) >= MaxBlockers { // the engine names no more
				least = "at least "
			}
			fmt.Fprintf(&b, " and %s%d more", least, len(e.Blocked)-i)
			break
		}
		fmt.Fprintf(&b, "; %s", by)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %s", e.Cause)
	}
	return b.String()
}

// Unwrap lets errors.Is find the sentinel, the reason and the cause.
func (e *Error) Unwrap() []error {
	all := []error{e.Err}
	if e.Err == ErrDeadlock {
		all = append(all, ErrNotAcquired)
	}
	if e.Reason != NoReason {
		all = append(all, e.Reason)
	}
	if e.Cause != nil {
		all = append(all, e.Cause)
	}
	return all
}

// Stale returns the age of the statuses that a List with Query.Stale yielded before err. ok is
// false if err is not about old statuses.
func Stale(err error) (ago time.Duration, ok bool) {
	var e *Error
	if !errors.As(err, &e) || e.Stale == 0 {
		return 0, false
	}
	return e.Stale, true
}

// Invalid returns the [ErrInvalid] of a refused request. The message says what is wrong, where, and
// what would be right.
func Invalid(format string, args ...any) error { return invalidf(format, args...) }

func invalidf(format string, args ...any) error {
	return &Error{Err: ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}
