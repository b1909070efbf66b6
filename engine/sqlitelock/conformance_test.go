package sqlitelock

import (
	"context"
	"path/filepath"
	"testing"
	"time"

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

// inBubble opens handles in the fake time of a bubble. They poll: a goroutine that waits in the
// kernel for a file or a lock would keep the time of its bubble from passing.
func inBubble(t *testing.T, path, boot string) *Engine {
	t.Helper()
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when time begins in every bubble
	clock := func() (time.Duration, error) { return time.Since(began), nil }
	e, err := open(context.Background(), path, options{careless: true, polls: true}, clock, boot)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var bubble = enginetest.Harness{
	Many:   true,
	Bubble: true,
	Fresh: func(t *testing.T) enginetest.Open {
		path := filepath.Join(t.TempDir(), "locks.db")
		return func() lockkeeper.Engine { return inBubble(t, path, "boot") }
	},
}

func TestConformance(t *testing.T) { enginetest.Run(t, bubble) }

func TestStress(t *testing.T) { enginetest.Stress(t, bubble) }

// The kernel says here when files are written to and processes die.
func TestConformanceInRealTime(t *testing.T) {
	testmode.NeedLong(t, "the suite takes real seconds; TestConformance runs it in a bubble, and tests with "+
		"processes cover wakeups and deaths by the kernel")
	enginetest.Run(t, harness(options{careless: true}))
}

func TestStressInRealTime(t *testing.T) {
	t.Parallel() // most of it is waiting
	enginetest.Stress(t, harness(options{careless: true}))
}

// Sessions that need no process survive a reboot too.
func TestConformanceOutlive(t *testing.T) {
	h := bubble
	h.Many = false
	h.Fresh = func(t *testing.T) enginetest.Open {
		path := filepath.Join(t.TempDir(), "locks.db")
		return func() lockkeeper.Engine { return outliving{inBubble(t, path, "boot")} }
	}
	h.Restart = func(t *testing.T, old lockkeeper.Engine) lockkeeper.Engine {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		return outliving{inBubble(t, old.(outliving).db.path, "another boot")}
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
