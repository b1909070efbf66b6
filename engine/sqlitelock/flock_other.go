//go:build !unix

package sqlitelock

import (
	"errors"
	"os"
)

// kernelKnows: here the kernel does not say when the processes of a session are dead, so a session
// lives until its TTL has passed. Its file only serves wakeups.
const kernelKnows = false

var errFileLocked = errors.New("the file is locked")

func lockFile(*os.File, bool) error { return nil }

func awaitFree(*os.File) error { return errors.ErrUnsupported }
