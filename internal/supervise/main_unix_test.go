//go:build unix

package supervise

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// Like lk, the test binary keeps its main goroutine on the main thread: see Start.
func init() { runtime.LockOSThread() }

// programs are the other programs that the test binary can be.
var programs = map[string]func(){
	Verb: func() {
		if Guard(os.Args[2], os.Stderr, func(context.Context, []byte, uint64) {}) != nil {
			os.Exit(2)
		}
	},
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		programs[os.Args[1]]()
		return
	}
	m.Run()
}

// program runs the test binary as one of the other programs.
func program(name string) *exec.Cmd { return exec.Command("/proc/self/exe", name) }

// patience bounds every wait of a test.
const patience = 20 * time.Second

// eventually waits for a condition that no event announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
