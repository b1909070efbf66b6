package sqlitelock

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that is full in truth, where one can be mounted.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mount("locks", folder, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	e := openReal(t, filepath.Join(folder, "locks.db"))
	granted, err := cramped(e, func() (func() error, error) { return fillDisk(folder) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("failed after %d grants", granted)
}
