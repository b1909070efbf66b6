package supervise

import "errors"

// ErrNoProcess reports that no process has that number.
var ErrNoProcess = errors.New("no such process")
