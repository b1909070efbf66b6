package supervise

import "errors"

// Exit codes of a command that can't be started, as shells have them, and the base of those that
// stand for signals.
const (
	NotExecutable = 126 // the command was found and can't be executed
	NotFound      = 127 // the command was not found
	SignalCode    = 128 // plus the number of the signal that ended the command
)

// Verb is the argument by which this program starts itself as a guard: see [Guard].
const Verb = "guard"

// ErrNoOrders reports that lk did not start this process as a guard.
var ErrNoOrders = errors.New("lk guard is a part of lk run, which starts it")

// A StartError says why a command could not be started.
type StartError struct {
	Code int // NotFound or NotExecutable
	Err  error
}

func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
