//go:build !unix

package sqlitelock

import (
	"errors"
	"os"
)

// kernelKnows: here nobody tells when the processes of a session are dead, so
// it lives until its TTL has passed. Its file is a bell only.
const kernelKnows = false

var errFileLocked = errors.New("the file is locked")

func lockFile(*os.File, bool) error { return nil }

func awaitFree(*os.File) error { return errors.ErrUnsupported }
