package disklock

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/roles"
	"golang.org/x/sys/unix"
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
	strace, err := exec.LookPath("strace")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("there is no strace to make system calls fail: make tools installs it")
	}
	if err != nil {
		t.Skip("there is no strace to make system calls fail: make tools installs it")
	}
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
			tracer := exec.Command(strace, "-f", "-qq", "-o", "/dev/null", "-e", "inject="+fault, "-p",
				fmt.Sprint(p.Cmd.Process.Pid))
			said, err := tracer.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := tracer.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { tracer.Process.Kill(); tracer.Wait() }()
			if !attached(p.Cmd.Process.Pid) {
				text, _ := io.ReadAll(said)
				t.Skipf("strace can't attach: %s", text)
			}
			why := ask("db/2", "refused")
			if !strings.Contains(why, "restart this process") {
				t.Errorf("refused with %q, want what to do", why)
			}
			ask("db/3", "refused")
			tracer.Process.Signal(unix.SIGINT)
			tracer.Wait()
			ask("db/4", "refused") // though the system would do it now
			p.Kill()
			again := roles.Start(t, "claim", dir, "bob")
			again.Read("open")
			fmt.Fprintln(again.In, "db/1")
			again.Read("ended")
		})
	}
}

// attached waits until a tracer has the process.
func attached(pid int) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		if _, rest, _ := strings.Cut(string(status), "TracerPid:"); !strings.HasPrefix(strings.TrimSpace(rest), "0\n") {
			return allThreads(pid)
		}
		<-time.After(5 * time.Millisecond)
	}
	return false
}

// allThreads waits until a tracer has every thread.
func allThreads(pid int) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return false
		}
		traced := 0
		for _, task := range tasks {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
			if _, rest, _ := strings.Cut(string(status), "TracerPid:"); !strings.HasPrefix(strings.TrimSpace(rest), "0\n") {
				traced++
			}
		}
		if traced == len(tasks) {
			return true
		}
		<-time.After(5 * time.Millisecond)
	}
	return false
}
