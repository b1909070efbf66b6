package testdb

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// No thread ends with a server: the kernel kills all processes that the thread has started, and those
// may be servers of other tests.
func TestNoThreadEndsWithServer(t *testing.T) {
	var had []string
	for range 20 {
		p, err := launch(exec.Command("/bin/true"), "/", newLog(""))
		if err != nil {
			t.Fatal(err)
		}
		had = append(had, threads(t)...)
		<-p.gone
	}
	has := threads(t)
	for _, thread := range had {
		if !slices.Contains(has, thread) {
			t.Fatalf("thread %s has ended", thread)
		}
	}
}

// threads returns the ids of this process's threads.
func threads(t *testing.T) (ids []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ids = append(ids, task.Name())
	}
	return ids
}
