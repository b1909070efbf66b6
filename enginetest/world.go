package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// patience bounds what must happen soon. It is a safety net: nothing is expected
// to take that long, even on a busy machine.
const patience = 20 * time.Second

// late is how much later than promised something may happen in real time.
const late = 5 * time.Second

const (
	forever  = lockkeeper.Forever
	shortTTL = 2 * lockkeeper.MinTTL // of sessions that are left to expire, unless a busy computer takes as long
	longTTL  = lockkeeper.DefaultTTL // of sessions that outlive their test without renewal
)

// world is one test: a state of the engine that nobody else sees, and all who
// act on it.
type world struct {
	*testing.T
	harness    Harness
	guarantees lockkeeper.Guarantees
	recorder   *history.Recorder
	rules      history.Rules
	start      time.Time
	open       Open

	mu      sync.Mutex
	handles []lockkeeper.Engine
	users   int // sessions so far, to spread them over the handles
	live    map[*held]struct{}
	counts  map[lockkeeper.Path]*int64
	names   int
}

func newWorld(t *testing.T, h Harness) *world {
	w := &world{
		T:       t,
		harness: h,
		start:   time.Now(),
		live:    make(map[*held]struct{}),
		counts:  make(map[lockkeeper.Path]*int64),
	}
	w.recorder = history.NewRecorder(nil, nil)
	w.open = h.Fresh(t)
	w.handles = []lockkeeper.Engine{w.open()}
	if h.Many {
		w.handles = append(w.handles, w.open())
	}
	w.guarantees = w.handles[0].Guarantees()
	w.rules = history.RulesOf(w.guarantees)
	t.Cleanup(func() {
		for _, e := range w.handles {
			if err := e.Close(); err != nil {
				t.Errorf("closing the engine: %v", err)
			}
		}
	})
	return w
}

// claims reports whether the engine claims all of f.
func (w *world) claims(f lockkeeper.Features) bool { return w.guarantees.Features&f == f }

// rises fails the test unless fence is higher than before, if the engine claims rising fences.
func (w *world) rises(before, fence uint64) {
	w.Helper()
	if w.claims(fences) && fence <= before {
		w.Errorf("a grant has fence %d, an earlier one %d", fence, before)
	}
}

// now is the time since the test began.
func (w *world) now() time.Duration { return time.Since(w.start) }

// ctx bounds one round trip.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// within bounds what is done inside a hold: its own context has no deadline.
func (w *world) within(h *lockkeeper.Hold) context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

// handle gives each user the next handle in turn.
func (w *world) handle() lockkeeper.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	return w.handles[w.users%len(w.handles)]
}

// settled returns when what follows from all that was done has happened, as far
// as it can be known without waiting for it.
func (w *world) settled() {
	w.Helper()
	if w.harness.Bubble {
		synctest.Wait()
		return
	}
	p := w.peer("settled")
	for range 3 {
		p.hold(exclusive("nobody else uses this"))
		p.release(p.last)
	}
	p.leave()
}

// is fails the test unless err matches target.
func (w *world) is(err, target error) {
	w.Helper()
	if !errors.Is(err, target) {
		w.Fatalf("got error %v, want %v", err, target)
	}
}

// ok fails the test if err is an error.
func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// done waits until c is closed.
func (w *world) done(c <-chan struct{}, what string) {
	w.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		w.Fatalf("%s: not after %s", what, patience)
	}
}

// pass lets d pass. It is for time itself, not for waiting until something is done.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
}

// between fails the test unless took lies from least to most, of which the
// latter has some slack in real time.
func (w *world) between(what string, took, least, most time.Duration) {
	w.Helper()
	slack := late
	if w.harness.Bubble {
		slack = 20 * time.Millisecond
	}
	if took < least || took > most+slack {
		w.Errorf("%s after %s, want %s to %s", what, took, least, most+slack)
	}
}

func (w *world) name(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names++
	return fmt.Sprintf("%s-%d", prefix, w.names)
}

func exclusive(path string) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}
}

func shared(path string) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeShared}
}

func permits(path string, units, limit int) lockkeeper.Target {
	return lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModePermits, Units: units, Limit: limit}
}
