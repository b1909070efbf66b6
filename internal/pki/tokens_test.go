package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

func newToken(name string) access.Token {
	_, digest := access.NewToken()
	return access.Token{Name: name, Digest: digest, Created: time.Now()}
}

// No concurrent change is lost.
func TestConcurrentTokenChangesAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made", "tokens")
	const many = 20
	var changes sync.WaitGroup
	for i := range many {
		changes.Go(func() {
			if err := AddToken(file, newToken(fmt.Sprintf("ci-%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	changes.Wait()
	if tokens, err := ReadTokens(file); err != nil || len(tokens) != many {
		t.Errorf("the file has %d tokens, %v; want %d", len(tokens), err, many)
	}
}

// Removing a token leaves comments and other tokens, the last line without an end included.
func TestRemoveTokensKeepsOtherLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	one, two, other := newToken("ci"), newToken("ci"), newToken("deploy")
	text := fmt.Sprintf("# of the site\n%s\n\n%s\n%s", one, two, other)
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	third := newToken("ops")
	if err := AddToken(file, third); err != nil {
		t.Fatal(err)
	}
	if n, err := RemoveTokens(file, one.Digest.String()[:DigestChars]); n != 1 || err != nil {
		t.Errorf("removed %d, %v; want the one of that digest", n, err)
	}
	if n, err := RemoveTokens(file, "deploy"); n != 1 || err != nil {
		t.Errorf("removed %d, %v; want the one of that name", n, err)
	}
	got, err := os.ReadFile(file)
	if want := fmt.Sprintf("# of the site\n\n%s\n%s\n", two, third); err != nil || string(got) != want {
		t.Errorf("the file has %q, %v; want %q", got, err, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v; want that of before", info.Mode(), err)
	}
}

// A file that can't be parsed is not changed, so that nothing in it is lost.
func TestInvalidTokenFileIsNotChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AddToken(file, newToken("ci")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "nonsense\n" {
		t.Errorf("the file was changed to %q", text)
	}
}

// Who can't write a file learns which one and why, and no name that exists for a moment.
func TestUnwritableFileIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gone", "tokens")
	err := replaceFile(file, nil, 0o600)
	if want := "can't write " + file + ": no file can be made in its directory: no such file or directory"; err == nil ||
		err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %s", err, want)
	}
}
