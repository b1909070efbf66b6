package semaphore

import (
	"errors"
	"fmt"
)

// What can go wrong; look for it with errors.Is. None of these changed anything.
var (
	// ErrFull: with these slots there would be more in use than the caller's
	// limit allows. Nothing remembers the attempt. If the limit is below what was
	// asked for, the message says so: trying again won't help.
	ErrFull = errors.New("full")
	// ErrNotHeld: the slot is not held any more, or never was: it was released
	// before, or its owner has ended. Nobody else's slot is freed instead.
	ErrNotHeld = errors.New("not held")
	// ErrOwnerEnded: the owner was closed, or its context is done, so it gets no
	// slots any more. Beside it is the cause of the context's end, if that is why.
	// A release that comes after the end of the owner has it beside ErrNotHeld.
	ErrOwnerEnded = errors.New("owner has ended")
	// ErrInvalid: the request can't be right; the message says what would be.
	ErrInvalid = errors.New("invalid request")
)

var (
	errNever = fmt.Errorf("%w: the limit is below what is asked for", ErrFull)
	errNoKey = fmt.Errorf("%w: a key that is not equal to itself, such as a NaN, could never be found again",
		ErrInvalid)
	errFreedByEnd = fmt.Errorf("%w: its %w, which freed it", ErrNotHeld, ErrOwnerEnded)
)

// invalid says why n slots under a limit can't be asked for at all.
func invalid(n, limit int) error {
	if n < 1 {
		return fmt.Errorf("%w: %d slots, must be 1 or more", ErrInvalid, n)
	}
	return fmt.Errorf("%w: limit %d, must be 0 or more", ErrInvalid, limit)
}

// refused says why n slots under a limit are not to be had.
func refused(n, limit int) error {
	if n > limit {
		return errNever
	}
	return ErrFull
}
