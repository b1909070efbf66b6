package disklock

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// smallDisk mounts a disk of that size in memory.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Once the system can't sync or write, nothing is answered any more, and what was
// answered is there when another process opens the directory.
func TestInputOutputErrors(t *testing.T) {
	for _, fault := range []string{"fsync,fdatasync:error=EIO", "fsync,fdatasync:error=ENOSPC", "pwrite64:error=EIO",
		"fsync,fdatasync:error=EIO:when=1"} {
		t.Run(fault, func(t *testing.T) {
			dir := t.TempDir()
			p := roles.Start(t, "claim", dir, "ann")
			p.Read("open")
			ask := func(path, want string) string {
				t.Helper()
				fmt.Fprintln(p.In, path)
				return p.Read(want)
			}
			ask("db/1", "held")
			stop := p.Inject(fault)
			why := ask("db/2", "refused")
			if !strings.Contains(why, "restart this process") {
				t.Errorf("refused with %q, want what to do", why)
			}
			ask("db/3", "refused")
			stop()
			ask("db/4", "refused") // though the system would do it now
			p.Kill()
			again := roles.Start(t, "claim", dir, "bob")
			again.Read("open")
			fmt.Fprintln(again.In, "db/1")
			again.Read("ended")
		})
	}
}
