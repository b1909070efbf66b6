//go:build unix

package supervise

import (
	"errors"
	"os/exec"
	"testing"
	"time"
)

// The channel is closed at the end of the process and not before, with a pidfd and without.
func TestWatchProcessReportsTheEnd(t *testing.T) {
	for name, watch := range map[string]func(int) (<-chan struct{}, error){"watch": WatchProcess, "poll": pollProcess} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("cat")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended, err := watch(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
				t.Error("closed while the process lives")
			case <-time.After(50 * time.Millisecond):
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("not closed at its end")
			}
			if _, err := watch(cmd.Process.Pid); !errors.Is(err, ErrNoProcess) {
				t.Errorf("got %v, want that there is no such process", err)
			}
		})
	}
}
