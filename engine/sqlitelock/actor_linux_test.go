package sqlitelock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func init() { parts["borrow"] = playBorrow }

// playBorrow opens and closes a file of another user again and again, and prints what has become of
// the threads of this process.
func playBorrow(args []string) error {
	had := make(map[string]bool)
	for range 20 {
		e, err := Open(context.Background(), args[0])
		if err != nil {
			return err
		}
		now, err := threadUsers()
		if err != nil {
			return err
		}
		for thread := range now {
			had[thread] = true
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	has, err := threadUsers()
	if err != nil {
		return err
	}
	for thread := range had {
		const roots = "0 0 0 0, 0 0 0 0, 54321"
		if has[thread] != roots {
			return fmt.Errorf("thread %s acts as %q, want %q", thread, has[thread], roots)
		}
	}
	fmt.Println("kept")
	return nil
}

// threadUsers returns the user, group and supplementary groups of each thread of this process, as the
// kernel writes them.
func threadUsers() (map[string]string, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	users := make(map[string]string)
	for _, task := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			return nil, err
		}
		var ids []string
		for line := range strings.Lines(string(status)) {
			switch name, value, _ := strings.Cut(line, ":"); name {
			case "Uid", "Gid", "Groups":
				ids = append(ids, strings.Join(strings.Fields(value), " "))
			}
		}
		users[task.Name()] = strings.Join(ids, ", ")
	}
	return users, nil
}

// An engine of root that acts as another user gives its thread back with root's ids. A thread that
// ended with it would take the processes along that it has started with a death signal.
func TestActorGivesThreadBack(t *testing.T) {
	needsRoot(t)
	folder, program := public(t)
	theirs := filepath.Join(folder, "theirs")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, filepath.Join(theirs, "locks.db"))
	cmd.Env = []string{roles.Variable + "=borrow"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{team}}}
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "kept" {
		t.Errorf("%v: %s", err, out)
	}
}
