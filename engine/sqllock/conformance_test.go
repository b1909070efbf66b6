package sqllock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// crowd bounds how many tests of the suite run at once: their sessions live for
// a second only, whatever else the computer does. For the same reason they don't
// wait for the disk; TestKillLoop and others do.
var crowd = make(chan struct{}, 8)

// harness opens handles on one file, each of which is as another process.
func harness(options Options) enginetest.Harness {
	return enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			crowd <- struct{}{}
			t.Cleanup(func() { <-crowd })
			path := filepath.Join(t.TempDir(), "locks.db")
			return func() lockkeeper.Engine {
				e, err := Open(context.Background(), path, options)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		},
	}
}

func TestConformance(t *testing.T) { enginetest.Run(t, harness(Options{careless: true})) }

func TestStress(t *testing.T) { enginetest.Stress(t, harness(Options{careless: true})) }

// Sessions that need no process survive a reboot too.
func TestConformanceOutlive(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite in real time once more")
	}
	h := harness(Options{Outlive: true, careless: true})
	h.Many = false
	h.Restart = func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		e, err := open(context.Background(), old.(*Engine).db.path, Options{Outlive: true}, newBootClock(), "another boot")
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	enginetest.Run(t, h)
}
