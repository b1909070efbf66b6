package enginetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/history"
)

// stoodStill has the attempt believe that the process stood still for so long.
func stoodStill(w *world, most time.Duration) {
	p := w.reporter.(*attempt).pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most, p.last = most, time.Now().Add(time.Minute)
}

func failLate(w *world) {
	stoodStill(w, time.Second)
	w.Fatal("too late")
}

func failInTime(w *world) {
	stoodStill(w, 0)
	w.Error("wrong")
}

// attemptBodies are checks: each is called with the number of the attempt.
var attemptBodies = map[string]struct {
	body     func(w *world, number int)
	attempts int
	passes   bool
	says     string
}{
	"passes at once": {func(w *world, _ int) {}, 1, true, ""},
	"passes in the third, with longer times": {func(w *world, number int) {
		if number < 3 {
			failLate(w)
		}
		if w.shortTTL() != 4*shortTTL || w.longTTL() != 4*longTTL || w.maxWait() != 4*maxWait {
			w.Errorf("TTLs of %s and %s", w.shortTTL(), w.longTTL())
		}
	}, 3, true, ""},
	"never passes":          {func(w *world, _ int) { failLate(w) }, 5, false, "too late"},
	"fails without a pause": {func(w *world, _ int) { failInTime(w) }, 1, false, "wrong"},
	"fails after a failure, then stands still": {func(w *world, _ int) {
		failInTime(w)
		failLate(w)
	}, 1, false, "wrong"},
	"two hold at once, while it stands still": {func(w *world, number int) {
		for _, client := range []string{"one", "two"} {
			base := history.Event{Client: client, Claim: client, Targets: []lockkeeper.Target{exclusive("db")}}
			base.Kind = history.Ask
			w.recorder.Add(base)
			base.Kind, base.Grants, base.Fence = history.Granted, []lockkeeper.Grant{{Target: exclusive("db")}}, 1
			w.recorder.Add(base)
		}
		failLate(w)
	}, 1, false, "history: exclusion"},
}

const attemptVariable = "LOCKKEEPER_TEST_ATTEMPT"

// A check begins again if the process stood still before it failed, and only then. What history says
// of an abandoned attempt counts.
func TestAttempts(t *testing.T) {
	if name := os.Getenv(attemptVariable); name != "" {
		number := 0
		h := Harness{Fresh: func(t *testing.T) Open {
			e := memlock.New()
			return func() lockkeeper.Engine { return e }
		}}
		h.attempts(t, func(w *world) {
			number++
			w.T.Logf("attempt number %d", number)
			attemptBodies[name].body(w, number)
		})
		return
	}
	for name, c := range attemptBodies {
		t.Run(name, func(t *testing.T) {
			run := exec.Command(os.Args[0], "-test.run=^TestAttempts$", "-test.v")
			run.Env = append(os.Environ(), attemptVariable+"="+name)
			text, err := run.CombinedOutput()
			out := string(text)
			if n := strings.Count(out, "attempt number "); n != c.attempts || (err == nil) != c.passes ||
				!strings.Contains(out, c.says) {
				t.Errorf("%d attempts and %v, want %d, %t, %q:\n%s", n, err, c.attempts, c.passes, c.says, out)
			}
		})
	}
}

// A pulse that is late says for how long, also before its next beat.
func TestPulse(t *testing.T) {
	p := &pulse{last: time.Now().Add(-time.Hour)}
	if got := p.longest(); got < time.Hour-time.Second {
		t.Errorf("before the beat: %s", got)
	}
	p.beat()
	if got := p.longest(); got < time.Hour-time.Second {
		t.Errorf("after the beat: %s", got)
	}
}
