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

// maxWait bounds every wait of the suite. Nothing is expected to take that long, even on a busy
// machine.
const maxWait = 20 * time.Second

// tolerance is the largest delay that a busy machine may add to a promised time.
const tolerance = 5 * time.Second

const (
	forever  = lockkeeper.Forever
	shortTTL = 2 * lockkeeper.MinTTL // for sessions that expire within a check
	longTTL  = lockkeeper.DefaultTTL // for sessions that outlive their check without renewal
)

// world is the environment of one check: a new state of the engine, handles on it, and the
// recorder.
type world struct {
	*testing.T
	reporter
	scale      time.Duration // of TTLs and bounds: more than 1 after an attempt on a slow machine
	harness    Harness
	guarantees lockkeeper.Guarantees
	recorder   *history.Recorder
	rules      history.Rules
	start      time.Time
	open       Open

	mu      sync.Mutex
	handles []lockkeeper.Engine
	users   int // number of sessions so far, to spread them over the handles
	live    map[*held]struct{}
	counts  map[lockkeeper.Path]*int64
	names   int
}

// reporter has the methods of testing.T that belong to an attempt, or in a bubble to the test.
type reporter interface {
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
}

// newWorld makes the world of an attempt; nil is a test that is no attempt.
func newWorld(t *testing.T, h Harness, a *attempt) *world {
	w := &world{
		T:        t,
		reporter: t,
		scale:    1,
		harness:  h,
		start:    time.Now(),
		live:     make(map[*held]struct{}),
		counts:   make(map[lockkeeper.Path]*int64),
	}
	if a != nil {
		w.reporter, w.scale = a, a.scale
	}
	w.recorder = history.NewRecorder(nil, nil)
	w.open = h.Fresh(t)
	w.handles = []lockkeeper.Engine{w.open()}
	if h.Many {
		w.handles = append(w.handles, w.open())
	}
	w.guarantees = w.handles[0].Guarantees()
	w.rules = history.RulesOf(w.guarantees)
	w.Cleanup(func() {
		for _, e := range w.handles {
			if err := e.Close(); err != nil {
				w.Errorf("closing the engine: %v", err)
			}
		}
	})
	return w
}

// shortTTL is the TTL of sessions that expire within a check.
func (w *world) shortTTL() time.Duration { return w.scale * shortTTL }

// longTTL is the TTL of sessions that outlive their check without renewal.
func (w *world) longTTL() time.Duration { return w.scale * longTTL }

// maxWait bounds every wait.
func (w *world) maxWait() time.Duration { return w.scale * maxWait }

// tolerance is the largest delay that a busy machine may add to a promised time.
func (w *world) tolerance() time.Duration { return w.scale * tolerance }

// claims reports whether the engine claims all features of f.
func (w *world) claims(f lockkeeper.Features) bool { return w.guarantees.Features&f == f }

// rises fails the check if the engine claims rising fences and fence is not higher than before, the
// fence of an earlier grant of the same path.
func (w *world) rises(before, fence uint64) {
	w.Helper()
	if w.claims(fences) && fence <= before {
		w.Errorf("a grant has fence %d, an earlier one %d", fence, before)
	}
}

// now returns the time since the check began.
func (w *world) now() time.Duration { return time.Since(w.start) }

// ctx returns a context for one round trip.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), w.maxWait())
	w.Cleanup(cancel)
	return ctx
}

// within returns a context for an operation inside a hold: the hold's context with a deadline.
func (w *world) within(h *lockkeeper.Hold) context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), w.maxWait())
	w.Cleanup(cancel)
	return ctx
}

// handle returns the handles in turn.
func (w *world) handle() lockkeeper.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	return w.handles[w.users%len(w.handles)]
}

// quiesce returns when the engine has processed the consequences of all earlier operations, as far
// as a check can know. In real time it makes three round trips on an unrelated path.
func (w *world) quiesce() {
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

// is fails the check unless err matches target.
func (w *world) is(err, target error) {
	w.Helper()
	if !errors.Is(err, target) {
		w.Fatalf("got error %v, want %v", err, target)
	}
}

// ok fails the check if err is not nil.
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
	case <-time.After(w.maxWait()):
		w.Fatalf("%s: not after %s", what, w.maxWait())
	}
}

// sleep waits for d. Use it to let time pass, not to wait for an event.
func (w *world) sleep(d time.Duration) {
	<-time.After(d)
}

// between fails the check unless least <= took <= most + slack, where slack is the tolerance in
// real time and 20 ms in a bubble.
func (w *world) between(what string, took, least, most time.Duration) {
	w.Helper()
	slack := w.tolerance()
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
