package enginetest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/history"
)

// A check in real time may fail because the machine stood still: a session that the check renews
// ended meanwhile, or a moment that the check wanted to use has passed. So checks run in attempts:
//
//	attempt ── passes ──────────────────────────────→ the check passes
//	   │
//	   ├── fails, and the process never stood still ─→ the check fails
//	   │
//	   └── fails, and the process stood still ───────→ an attempt with doubled TTLs
//
// What package history says of an attempt counts in every case: exclusion does not depend on time.

// stillness is the longest time that the process may stand still in an attempt that counts. Each check
// has as much room.
const stillness = 250 * time.Millisecond

// maxAttempts bounds the attempts of a check. The last one counts, however slow the machine is.
const maxAttempts = 5

// An attempt runs a check once. It keeps the failures and cleanups of the check's world.
type attempt struct {
	*testing.T
	scale time.Duration // of all TTLs and bounds of the world
	pulse *pulse

	mu       sync.Mutex
	over     bool
	failures []string
	stood    time.Duration // for how long at most the process stood still before the first failure
	cleanups []func()
}

// attempts runs a check in real time until an attempt counts.
func (h Harness) attempts(t *testing.T, body func(*world)) {
	t.Helper()
	for number := 1; ; number++ {
		a := &attempt{T: t, scale: 1 << (number - 1), pulse: startPulse()}
		a.run(h, body)
		if len(a.failures) == 0 {
			return
		}
		if a.stood < stillness || number == maxAttempts || t.Failed() {
			for _, failure := range a.failures {
				t.Error(failure)
			}
			return
		}
		t.Logf("attempt %d is abandoned, because this process stood still for %s: %s", number, a.stood,
			strings.Join(a.failures, "; "))
	}
}

// run runs the check, and judges the history.
func (a *attempt) run(h Harness, body func(*world)) {
	a.Helper()
	var w *world
	ended := make(chan struct{})
	go func() { // a fatal failure ends this goroutine alone
		defer close(ended)
		w = newWorld(a.T, h, a)
		body(w)
	}()
	<-ended
	if w != nil {
		rules := w.rules
		rules.Running = rules.Running || a.Failed() // then the check has left work unfinished
		reportFaults(a.T, history.Judge(w.recorder.Events(), rules))
	}
	a.end()
}

// end runs the cleanups, and ignores all later failures: they are of goroutines that a fatal failure
// left behind.
func (a *attempt) end() {
	for {
		a.mu.Lock()
		n := len(a.cleanups)
		if n == 0 {
			a.over = true
			a.mu.Unlock()
			a.pulse.stop()
			return
		}
		last := a.cleanups[n-1]
		a.cleanups = a.cleanups[:n-1]
		a.mu.Unlock()
		last()
	}
}

// fail keeps a failure with the lines of the suite that it comes from.
func (a *attempt) fail(text string) {
	var callers [20]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	var lines []string
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if file := filepath.Base(frame.File); strings.Contains(frame.Function, "/enginetest.") && file != "attempt.go" {
			lines = append(lines, fmt.Sprintf("%s:%d", file, frame.Line))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	if len(a.failures) == 0 {
		a.stood = a.pulse.longest()
	}
	a.failures = append(a.failures, strings.Join(lines, ", ")+": "+strings.TrimSpace(text))
}

// Error fails the attempt. So do the next ones, as those of testing.T do.
func (a *attempt) Error(args ...any) { a.fail(fmt.Sprintln(args...)) }

// Errorf fails the attempt.
func (a *attempt) Errorf(format string, args ...any) { a.fail(fmt.Sprintf(format, args...)) }

// Fatal fails the attempt, and ends the goroutine.
func (a *attempt) Fatal(args ...any) { a.fail(fmt.Sprintln(args...)); runtime.Goexit() }

// Fatalf fails the attempt, and ends the goroutine.
func (a *attempt) Fatalf(format string, args ...any) {
	a.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Failed reports whether the attempt has failed.
func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.failures) > 0 || a.T.Failed()
}

// Cleanup has f called when the attempt has ended, in the order of testing.T.
func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

// A pulse measures for how long this process stands still.
type pulse struct {
	quit, ended chan struct{}

	mu   sync.Mutex
	last time.Time // the latest beat
	most time.Duration
}

// pulseRest is the time between two beats.
const pulseRest = 20 * time.Millisecond

func startPulse() *pulse {
	p := &pulse{quit: make(chan struct{}), ended: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-time.After(pulseRest):
				p.beat()
			case <-p.quit:
				return
			}
		}
	}()
	return p
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.most = max(p.most, now.Sub(p.last)-pulseRest)
	p.last = now
}

// longest returns for how long the process stood still at most.
func (p *pulse) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.most, time.Since(p.last)-pulseRest)
}

func (p *pulse) stop() {
	close(p.quit)
	<-p.ended
}
