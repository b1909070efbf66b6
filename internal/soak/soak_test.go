package soak

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/roles"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

var (
	length  = flag.Duration("soak", 0, "how long to load all engines side by side; 0 leaves TestSoak out")
	engines = flag.String("engines", "", "the engines of TestSoak, such as mem,redis; all if empty")
)

func TestMain(m *testing.M) {
	roles.Play(map[string]func([]string) error{"drive": drive, "serve": serveMemory, "node": serveNode})
	os.Exit(m.Run())
}

const (
	interval = 150 * time.Millisecond // of each of the eight workers of an engine
	maxRound = 5 * time.Second
	report   = 10 * time.Second // from one line of progress to the next

	maxFaults = 20              // of the histories of one engine that are printed
	minCosts  = 5 * time.Minute // a shorter soak does not judge the cost of operations
)

// TestSoak loads all engines side by side for long. None may grow, and no history may have a fault. ^C
// ends it early, and what was measured until then is judged.
func TestSoak(t *testing.T) {
	if *length == 0 {
		t.Skip("only with -soak=DURATION, as make soak has it: TestSoakOfTwoEngines is the short form")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	names := strings.FieldsFunc(*engines, func(r rune) bool { return r == ',' })
	r := &run{T: t, length: *length, round: min(*length/40, maxRound)}
	r.all = stations(t, testmode.Seed(t), interval, names...)
	table, faults := r.soak(ctx)
	fmt.Fprintf(t.Output(), "\n%s\n", table)
	for _, wrong := range faults {
		t.Error(wrong)
	}
}

// TestSoakOfTwoEngines is the short form.
func TestSoakOfTwoEngines(t *testing.T) {
	t.Parallel() // it mostly waits
	r := &run{T: t, length: 5 * time.Second, round: 250 * time.Millisecond}
	r.all = stations(t, testmode.Seed(t), interval/5, "mem", "disk")
	_, faults := r.soak(t.Context())
	for _, wrong := range faults {
		t.Error(wrong)
	}
	for _, s := range r.all {
		if s.Operations() < 100 || s.last.Operations == 0 {
			t.Errorf("%s had %d operations: %s", s.Name, s.Operations(), s.last.Text)
		}
		if first := s.Trends()[0]; !first.Judged() {
			t.Errorf("%s has %d samples", s.Name, len(s.Samples))
		}
	}
}

// TestSoakFindsLeaks: an engine that leaks with each claim is found, and the fault says what grows.
func TestSoakFindsLeaks(t *testing.T) {
	t.Parallel()
	r := &run{T: t, length: 3 * time.Second, round: 150 * time.Millisecond}
	leaks := []struct {
		leak  string
		grows Quantity
	}{{"goroutine", goroutines}, {"memory", heap}, {"file", files}}
	seed := testmode.Seed(t)
	for i, l := range leaks {
		s := &station{Part: Part{Name: "mem with a leak of a " + l.leak}}
		s.driving = driving{URL: "mem:", Seed: seed + uint64(i), Interval: interval / 5, Leak: l.leak}
		s.drive(t)
		r.all = append(r.all, s)
	}
	_, faults := r.soak(t.Context())
	for _, l := range leaks {
		found := false
		for _, wrong := range faults {
			found = found || strings.HasPrefix(wrong, "mem with a leak of a "+l.leak+": "+l.grows.Name+" grows: from ")
		}
		if !found {
			t.Errorf("a leak of a %s is not found; found: %q", l.leak, faults)
		}
	}
}

// run is a soak that runs.
type run struct {
	*testing.T
	length, round time.Duration
	all           []*station
}

// soak runs the load for the length, or until ctx ends, and judges it.
func (r *run) soak(ctx context.Context) (table string, faults []string) {
	began := time.Now()
	next := began.Add(report)
	// On a busy machine a pause may take longer than a round.
	for n := 0; ctx.Err() == nil && (n < MinSamples || time.Since(began) < r.length); n++ {
		r.commandAll("resume", func(*station) any { return new(any) })
		select {
		case <-ctx.Done():
		case <-time.After(r.round):
		}
		r.pause()
		if now := time.Now(); !now.Before(next) {
			next = now.Add(report)
			fmt.Fprintln(r.Output(), r.progress(now.Sub(began)))
		}
	}
	if time.Since(began) < r.length {
		fmt.Fprintf(r.Output(), "ended early, after %v\n", time.Since(began).Round(time.Second))
	}
	r.commandAll("end", func(*station) any { return new(any) })
	var parts []*Part
	for _, s := range r.all {
		parts = append(parts, &s.Part)
		if n := len(s.faults); n > maxFaults {
			s.faults = append(s.faults[:maxFaults], fmt.Sprintf("%s: %d further faults", s.Name, n-maxFaults))
		}
		faults = append(faults, s.faults...)
		for _, v := range s.services {
			parts = append(parts, &v.Part)
			if v.process != nil {
				if err := ask(v.process, "end", new(any)); err != nil {
					r.Errorf("%s: %v", v.Name, err)
				}
			}
		}
	}
	for _, p := range parts {
		p.Short = r.length < minCosts
	}
	table, grown := Report(parts)
	return table, append(faults, grown...)
}

// commandAll sends all loading processes a command, and then reads their answers.
func (r *run) commandAll(command string, answer func(*station) any) {
	r.Helper()
	for _, s := range r.all {
		s.process.Send(command)
	}
	for _, s := range r.all {
		if err := answerOf(s.process, command, answer(s)); err != nil {
			r.Fatalf("%s: %v", s.Name, err)
		}
	}
}

// pause stops all loads and takes the samples.
func (r *run) pause() {
	before := make([]paused, len(r.all))
	for i, s := range r.all {
		before[i] = s.last
		s.last = paused{}
	}
	r.commandAll("pause", func(s *station) any { return &s.last })
	for i, s := range r.all {
		done := s.last.Operations - before[i].Operations
		s.Samples = append(s.Samples, s.last.Sample)
		s.Rounds = append(s.Rounds, Round{CPU: s.last.CPU - before[i].CPU, Operations: done})
		for _, wrong := range s.last.Faults {
			s.faults = append(s.faults, s.Name+": "+wrong)
		}
		for _, v := range s.services {
			p, err := v.take()
			if err != nil {
				r.Fatalf("%s: %v", v.Name, err)
			}
			if n := len(v.Samples); n > 0 {
				v.Rounds = append(v.Rounds, Round{CPU: p.CPU - v.Samples[n-1].CPU, Operations: done})
			}
			v.Samples = append(v.Samples, p)
		}
	}
}

// progress is a line about a soak that has run for so long.
func (r *run) progress(since time.Duration) string {
	var all []string
	faults := 0
	for _, s := range r.all {
		all = append(all, fmt.Sprintf("%s %d", s.Name, s.last.Operations))
		faults += len(s.faults)
	}
	return fmt.Sprintf("%v of %v: %d faults; operations: %s", since.Round(time.Second), r.length, faults,
		strings.Join(all, ", "))
}
