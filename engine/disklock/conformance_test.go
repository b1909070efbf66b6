package disklock

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/table"
)

// harness opens the engine in the fake time of a bubble: its clock is that of
// package time, and what it waits for otherwise is the disk, which takes no time
// there. With an option it doesn't wait for the disk at all.
func harness(o options) enginetest.Harness {
	return enginetest.Harness{
		Fresh: func(t *testing.T) enginetest.Open {
			dir := t.TempDir()
			return func() lockkeeper.Engine { return openHere(t, dir, o) }
		},
		Bubble: true,
		Restart: func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine {
			image := crash(t, old.(*Engine))
			old.Close()
			return openHere(t, image, o)
		},
	}
}

func openHere(t testing.TB, dir string, o options) *Engine {
	t.Helper()
	e, err := open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// crash copies the directory as the death of the process would leave it, when all
// that was asked of the journal is in it: what was answered before it was safe, such
// as a release, is on its way else.
func crash(t testing.TB, e *Engine) string {
	t.Helper()
	image := t.TempDir()
	e.Keeper.Snapshot(func(table.Snapshot) { // so that nothing new comes
		e.journal.StartCommit()
		for e.journal.backlog.Load() > 0 {
			runtime.Gosched()
		}
		copyFolder(t, e.folder.path, image)
	})
	return image
}

func copyFolder(t testing.TB, from, to string) {
	t.Helper()
	for _, name := range []string{"journal.db", "journal.db-wal", "mark"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConformance(t *testing.T) { enginetest.Run(t, harness(options{careless: true})) }

func TestStress(t *testing.T) { enginetest.Stress(t, harness(options{careless: true})) }
