package semaphore

import (
	"errors"
	"fmt"
)

// The errors of this package, for errors.Is. A call that returns one of them changed nothing.
var (
	// ErrFull: with these slots, the key would exceed the caller's limit. If the limit is below the
	// number of slots asked for, trying again with it cannot succeed, and the message says so.
	ErrFull = errors.New("full")
	// ErrNotHeld: the slot is not held. It was released before, or its owner has ended.
	ErrNotHeld = errors.New("not held")
	// ErrOwnerEnded: the owner was closed or its context is done, so it cannot acquire. The error
	// also wraps the cause of the context, if that is the reason. A Release after the end of the
	// owner returns an error that wraps both ErrNotHeld and ErrOwnerEnded.
	ErrOwnerEnded = errors.New("owner has ended")
	// ErrInvalid: the arguments are out of range. The message says which are valid.
	ErrInvalid = errors.New("invalid request")
)

var (
	errLimitTooLow = fmt.Errorf("%w: the limit is below the number of slots asked for", ErrFull)
	errUnequalKey  = fmt.Errorf("%w: a key that is not equal to itself, such as a NaN, could never be found again",
		ErrInvalid)
	errFreedByEnd = fmt.Errorf("%w: its %w, which freed it", ErrNotHeld, ErrOwnerEnded)
)

// invalid returns the error for n < 1 or limit < 0.
func invalid(n, limit int) error {
	if n < 1 {
		return fmt.Errorf("%w: %d slots, must be 1 or more", ErrInvalid, n)
	}
	return fmt.Errorf("%w: limit %d, must be 0 or more", ErrInvalid, limit)
}

// refused returns the error for n slots that the limit does not allow.
func refused(n, limit int) error {
	if n > limit {
		return errLimitTooLow
	}
	return ErrFull
}
