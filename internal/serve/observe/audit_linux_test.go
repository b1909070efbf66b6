package observe

import (
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A write that fails in the middle of a line leaves that cut, and the line is written
// again, whole, when there is room.
func TestAuditCutByTheSystem(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	synctest.Test(t, auditCutByTheSystem)
}

func auditCutByTheSystem(t *testing.T) {
	a, path := auditFile(t)
	var before syscall.Rlimit
	must(t, 0, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	must(t, 0, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1000, Max: before.Max}))
	for _, text := range []string{"one", "two", "three", "four", "five"} {
		a.Started(text + strings.Repeat(".", 300))
		synctest.Wait()
	}
	if a.Err() == nil {
		t.Error("the log can't be written, and nobody says so")
	}
	must(t, 0, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	time.Sleep(2 * syncPause)
	must(t, 0, a.Close())
	lines, cut := read(t, path)
	var told []string
	for _, l := range lines {
		told = append(told, strings.Trim(l.Text, "."))
	}
	if strings.Join(told, " ") != "one two three four five" || cut != 1 {
		t.Errorf("the log has %q and %d cut lines, want all five and one", told, cut)
	}
}
