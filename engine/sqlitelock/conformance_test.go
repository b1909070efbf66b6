package sqlitelock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// crowd bounds how many tests of the suite run at once: their sessions live for
// a second only, whatever else the computer does. For the same reason they don't
// wait for the disk; TestKillLoop and others do.
var crowd = make(chan struct{}, 8)

// openHere is Open with options.
func openHere(path string, o options) (*Engine, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	return open(context.Background(), path, o, newBootClock(), boot)
}

// harness opens handles on one file, each of which is as another process.
func harness(o options) enginetest.Harness {
	return enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			crowd <- struct{}{}
			t.Cleanup(func() { <-crowd })
			path := filepath.Join(t.TempDir(), "locks.db")
			return func() lockkeeper.Engine {
				e, err := openHere(path, o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		},
	}
}

func TestConformance(t *testing.T) { enginetest.Run(t, harness(options{careless: true})) }

func TestStress(t *testing.T) { enginetest.Stress(t, harness(options{careless: true})) }

// Sessions that need no process survive a reboot too.
func TestConformanceOutlive(t *testing.T) {
	testmode.NeedLong(t, "it is the suite in real time once more")
	h := harness(options{careless: true})
	h.Many = false
	fresh := h.Fresh
	h.Fresh = func(t *testing.T) enginetest.Open {
		opens := fresh(t)
		return func() lockkeeper.Engine { return outliving{opens().(*Engine)} }
	}
	h.Restart = func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		e, err := open(context.Background(), old.(outliving).db.path, options{careless: true}, newBootClock(), "another boot")
		if err != nil {
			t.Fatal(err)
		}
		return outliving{e}
	}
	enginetest.Run(t, h)
}

// outliving attaches all sessions with Outlive.
type outliving struct{ *Engine }

func (e outliving) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	s.Outlive = true
	return e.Engine.Attach(ctx, s, notify)
}
