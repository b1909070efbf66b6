//go:build !unix

package sqlitelock

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// openDirectory opens a directory.
func openDirectory(path string) (*os.File, error) { return os.Open(path) }

// openIn opens a file of a directory.
func openIn(dir *os.File, name string, flag int) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir.Name(), name), flag, 0o600)
}

// removeIn removes an entry of a directory.
func removeIn(dir *os.File, name string) error { return os.Remove(filepath.Join(dir.Name(), name)) }

// namesIn lists a directory, up to a number of entries.
func namesIn(dir *os.File, most int) ([]string, error) {
	again, err := os.Open(dir.Name())
	if err != nil {
		return nil, err
	}
	defer again.Close()
	names, err := again.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
