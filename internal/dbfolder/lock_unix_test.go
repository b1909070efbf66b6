//go:build unix

package dbfolder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A folder may be on a network file system, so the process that has it may run on another host.
func TestRefusalNamesProcessAndHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for text, want := range map[string]string{
		"pid 5\nhost elsewhere\n":    `in use by process 5 of host "elsewhere"`,
		"pid 5\nhost " + host + "\n": "in use by process 5:",
		"pid 5\n":                    "in use by process 5:",
		"":                           "in use by another process",
		"pid x\nhost y\n":            "in use by another process",
		"pid 5\nhost " + strings.Repeat("h", 5000) + "\n": `in use by process 5 of host "hhh`,
	} {
		dir := t.TempDir()
		path, lock, err := LockFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(lockPath(path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err = LockFolder(dir)
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want ErrUnavailable with %q", text, err, want)
		}
		if _, inUse, err := LockCopied(path); err != nil || !strings.Contains("in use by "+inUse+":", want) {
			t.Errorf("%.30q: a copy: %q (%v), want %q", text, inUse, err, want)
		}
		lock.Unlock()
		_, lock, err = LockFolder(dir)
		if err != nil {
			t.Fatalf("after Unlock: %v", err)
		}
		got, _ := os.ReadFile(lockPath(path))
		if own := fmt.Sprintf("pid %d\nhost %s\n", os.Getpid(), host); string(got) != own {
			t.Errorf("the lock file says %q, want %q", got, own)
		}
		lock.Unlock()
	}
}
