package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// ReadTokens reads a file of tokens; a missing file has none.
func ReadTokens(path string) ([]access.Token, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	tokens, err := access.ParseTokens(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tokens, nil
}

// AddToken adds a token to a file, which it creates if necessary. When it returns nil, the file is on
// disk.
func AddToken(path string, t access.Token) error {
	line := t.String() + "\n"
	if _, err := access.ParseTokens(strings.NewReader(line)); err != nil {
		return err
	}
	return changeTokens(path, func(text []byte) ([]byte, error) {
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		return append(text, line...), nil
	})
}

// DigestChars is the number of characters of a digest that identify a token to people.
const DigestChars = 12

// RemoveTokens removes all tokens of a name from the file, or the one whose digest begins with name,
// and returns their number. Comments and other tokens stay as they are.
func RemoveTokens(path, name string) (removed int, err error) {
	err = changeTokens(path, func(text []byte) ([]byte, error) {
		var kept [][]byte
		for line := range bytes.Lines(text) {
			tokens, err := access.ParseTokens(bytes.NewReader(line))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if slices.ContainsFunc(tokens, func(t access.Token) bool { return t.Name == name || digestBegins(t, name) }) {
				removed++
				continue
			}
			kept = append(kept, line)
		}
		return bytes.Join(kept, nil), nil
	})
	return removed, err
}

// digestBegins reports whether text is a prefix of the token's digest that is long enough.
func digestBegins(t access.Token, text string) bool {
	return len(text) >= DigestChars && strings.HasPrefix(t.Digest.String(), text)
}

// changeTokens replaces a file of tokens by what change makes of its text. A lock of the directory
// excludes other processes that do the same. A file with an error in it is not changed.
func changeTokens(path string, change func(text []byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := ReadTokens(path); err != nil {
		return err
	}
	text, err := readFile(path)
	if err != nil {
		return err
	}
	if text, err = change(text); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	return replaceFile(path, text, mode)
}

// readFile returns the text of a file; nothing if there is no such file.
func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// replaceFile replaces a file by text, atomically. When it returns nil, the file is on disk.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new*")
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err // without the name of the temporary file
	}
	if err != nil {
		return fmt.Errorf("can't write %s: no file can be made in its directory: %w", path, err)
	}
	defer os.Remove(f.Name()) // without effect after the rename
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
