package deadlines

import (
	"testing"
	"time"
)

const second = time.Second

func TestDeadlineIsBeforeTheEngines(t *testing.T) {
	var s Session
	if s.Expire(100 * second) {
		t.Error("a session without a lease expires")
	}
	s.Extend(10*second, 9*second, func(d time.Duration) time.Duration { return d })
	if want := 19*second - 90*time.Millisecond - 10*time.Millisecond; s.Deadline() != want {
		t.Errorf("the deadline is %s, want %s", s.Deadline(), want)
	}
	if want := 13*second - 300*time.Millisecond; s.RenewAt != want {
		t.Errorf("it renews at %s, want %s", s.RenewAt, want)
	}
	if s.Expire(s.Deadline()-1) || !s.Alive {
		t.Error("it expires before its deadline")
	}
	s.Extend(5*second, 9*second, func(time.Duration) time.Duration { return 0 })
	if want := 19*second - Margin(9*second); s.Deadline() != want {
		t.Errorf("the late answer to an earlier request moves the deadline to %s, want %s", s.Deadline(), want)
	}
	if at := s.Deadline(); !s.Expire(at) || s.Alive || s.Expire(at) {
		t.Error("it does not expire once at its deadline")
	}
	if end := s.lapsedAt + 18*second; s.EngineEnded(end) || !s.EngineEnded(end+1) {
		t.Error("the engine has not ended it two TTLs later")
	}
}

func TestSessionWithoutTTLNeverExpires(t *testing.T) {
	var s Session
	s.Extend(0, 0, nil)
	if s.Expire(1<<60) || !s.Alive || s.EngineEnded(1<<60) {
		t.Error("it expires")
	}
	if RoundTrip(0, second) != second || RetryPause(0, second) != second {
		t.Error("its calls have bounds by its TTL")
	}
	if RoundTrip(2*second, second) != 2*second/3 || RetryPause(3*second, second) != second/2 {
		t.Error("calls of a short TTL last longer than it")
	}
}

// An answer states the end on which the engine relies; a hint only shortens it, until an answer that
// is current.
func TestHintOnlyShortensAHold(t *testing.T) {
	var e Ends[string]
	if e.First().Known() || e.Answered() {
		t.Fatal("a new hold has an end")
	}
	none, late, soon := End[string]{}, After(0, 20*second, "late", 20), After(0, 10*second, "soon", 10)
	if want := 20*second - Margin(20*second); late.At != want {
		t.Errorf("the end is %s, want %s", late.At, want)
	}
	for name, step := range map[string]struct {
		do   func(e *Ends[string]) bool
		says bool
		want End[string]
	}{
		"an answer":            {func(e *Ends[string]) bool { return e.Answer(5, soon, true) }, false, soon},
		"a later answer":       {func(e *Ends[string]) bool { return e.Answer(6, soon, true) }, true, soon},
		"an earlier answer":    {func(e *Ends[string]) bool { return e.Answer(4, soon, true) }, false, late},
		"it is taken back":     {func(e *Ends[string]) bool { return e.Answer(6, none, true) }, false, none},
		"a hint":               {func(e *Ends[string]) bool { return e.Hint(soon) }, true, soon},
		"a hint takes it back": {func(e *Ends[string]) bool { return e.Hint(none) }, true, late},
		"an answer after a hint": {func(e *Ends[string]) bool {
			e.Hint(soon)
			return e.Answer(6, late, true)
		}, true, late},
		"an answer that is older than a hint": {func(e *Ends[string]) bool {
			e.Hint(soon)
			return e.Answer(6, late, false)
		}, true, soon},
		"the engine restarts": {func(e *Ends[string]) bool {
			e.Recount()
			return e.Answer(1, soon, true)
		}, true, soon},
	} {
		e := Ends[string]{}
		e.Answer(5, late, true)
		if says := step.do(&e); says != step.says || e.First() != step.want || e.Stated() != step.want {
			t.Errorf("%s: %t, and the hold ends at %v; want %t and %v", name, says, e.First(), step.says, step.want)
		}
	}
	if e.Hint(none) {
		t.Error("a hint of nothing needs an answer")
	}
}

func TestLatestEndOfALongestHoldCounts(t *testing.T) {
	var e Ends[string]
	e.Bound(0, 100*second, "overdue")
	first := e.First()
	e.Bound(60*second, 40*second, "overdue")
	if later := e.First(); later.At <= first.At || later.At >= 100*second || !e.Bounded() {
		t.Errorf("the end goes from %s to %s, want it closer to 100s", first.At, later.At)
	}
	e.Bound(70*second, 10*second, "overdue")
	if e.First().At < first.At {
		t.Errorf("an earlier end counts: %s", e.First().At)
	}
	if e.Answer(1, After(0, 50*second, "stolen", 0), true); e.First().Why != "stolen" || !e.First().Passed(50*second) {
		t.Errorf("the first end is %v", e.First())
	}
}
