package main

import (
	"io"
	"os"

	"github.com/lockkeeper/lockkeeper"
)

// visibleOutput writes what lk says with hidden characters escaped, so that the
// notes of others can't make a line look like another. Each Write must end between
// two characters.
type visibleOutput struct{ to *os.File }

func (v visibleOutput) Write(text []byte) (int, error) {
	if _, err := v.to.Write(lockkeeper.AppendVisible(nil, text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// The streams of this process, for people.
var (
	stdout io.Writer = visibleOutput{os.Stdout}
	stderr io.Writer = visibleOutput{os.Stderr}
)
