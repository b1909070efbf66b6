package main

import (
	"io"
	"os"

	"github.com/lockkeeper/lockkeeper"
)

// visibleOutput escapes hidden characters, so that notes of other users can't forge
// output of lk. No Write may split a character.
type visibleOutput struct{ to *os.File }

func (v visibleOutput) Write(text []byte) (int, error) {
	if _, err := v.to.Write(lockkeeper.AppendVisible(nil, text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// The output streams of this process.
var (
	stdout io.Writer = visibleOutput{os.Stdout}
	stderr io.Writer = visibleOutput{os.Stderr}
)
