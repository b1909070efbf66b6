package priorities

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

var (
	line    = Policy{Name: "higher priority goes first, and nobody is interrupted", Step: lowJob}
	steal   = Policy{Name: "urgent claims ask, and it yields within 1 s", Steal: true, Step: time.Second}
	minimum = Policy{Name: "urgent claims ask, and it yields within 10 s", Steal: true, Step: 10 * time.Second}
	ageing  = Policy{Name: "it yields within 1 s, and is urgent after waits of 60 s", Steal: true, Step: time.Second,
		Patience: time.Minute}
	bounded = Policy{Name: "it yields within 1 s, and urgent claims hold for 3 s at most", Steal: true,
		Step: time.Second, MaxHold: 3 * time.Second}
)

const over = 1.2 // the urgent claims want more than all of the time

// TestStarvation measures an hour of fake time for each policy and load, and logs the table that
// docs/priorities.md has. It checks what the document says about the figures.
func TestStarvation(t *testing.T) {
	results := make(map[Policy]map[float64]Result)
	var b strings.Builder
	for _, p := range []Policy{line, steal, minimum, ageing, bounded} {
		results[p] = make(map[float64]Result)
		for _, load := range []float64{0.5, 0.8, over} {
			r := measured(t, p, load)
			results[p][load] = r
			fmt.Fprintf(&b, "| %s | %.0f %% | %.0f %% | %s | %s |\n", p.Name, 100*load, 100*r.LowShare,
				r.LowLongest.Round(time.Second), r.UrgentMean.Round(time.Second))
		}
	}
	t.Log("\n" + b.String())
	for _, p := range []Policy{line, steal, minimum} {
		if r := results[p][over]; r.LowShare > 0.02 || r.LowLongest < 50*time.Minute {
			t.Errorf("%s: the low worker is not starved: %+v", p.Name, r)
		}
		if r := results[p][0.5]; r.LowShare < 0.48 || r.LowShare > 0.53 {
			t.Errorf("%s: the low worker does not get what is left: %+v", p.Name, r)
		}
	}
	if r := results[ageing][over]; r.LowShare < 0.05 || r.LowLongest > 15*time.Minute {
		t.Errorf("%s: the low worker is starved: %+v", ageing.Name, r)
	}
	if r := results[bounded][over]; r.LowShare < 0.25 {
		t.Errorf("%s: the low worker does not get what is left: %+v", bounded.Name, r)
	}
	wait := func(p Policy) time.Duration { return results[p][0.5].UrgentMean }
	if !(wait(steal) < wait(minimum) && wait(minimum) < wait(line) && wait(steal) < wait(ageing)) {
		t.Error("the urgent claims do not pay for what the low worker gets")
	}
}

func measured(t *testing.T, p Policy, load float64) (r Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		forLow := lockkeeper.New(e, lockkeeper.SharedEngine())
		forUrgent := lockkeeper.New(e, lockkeeper.SharedEngine())
		var err error
		if r, err = Measure(forLow, forUrgent, p, load, time.Hour, 1); err != nil {
			t.Error(err)
		}
		for _, c := range []interface{ Close() error }{forLow, forUrgent, e} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}
