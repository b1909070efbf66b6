package main

import (
	"math"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{5, 1, 2}, spread{2, 1, 5}},
		{[]float64{5, 1, 2, 4}, spread{3, 1, 5}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.figures, got, c.want)
		}
	}
}

// Ratios are taken round by round, so that a machine that is slow for a while
// changes none.
func TestRatios(t *testing.T) {
	rounds := func(pairs ...int64) (all []sample) {
		for _, n := range pairs {
			all = append(all, sample{Pairs: n, Elapsed: time.Second, ClientCPU: time.Millisecond})
		}
		return all
	}
	table := &table{workload: workload{distinct, 1, "a"}, Rows: []*row{
		{Peer: "a", Rounds: rounds(100, 10, 1000)},
		{Peer: "b", Rounds: rounds(50, 5, 500)},
		{Peer: "c", Failure: "it died"},
	}}
	table.workOut()
	f := table.row("b").Figures[pairsPerSecond]
	if want := (spread{50, 5, 500}); f.spread != want {
		t.Errorf("figures %+v, want %+v", f.spread, want)
	}
	if want := (spread{0.5, 0.5, 0.5}); f.Ratio == nil || *f.Ratio != want {
		t.Errorf("ratio %+v, want %+v", f.Ratio, want)
	}
	if f, ok := table.row("b").Figures[serverCPU]; ok {
		t.Errorf("server time without a server: %+v", f)
	}
	if got := table.row("c").Figures; len(got) != 0 {
		t.Errorf("a peer that failed has figures: %v", got)
	}
}

// What says nothing is left out: fairness after few turns, a percentile of few
// hand-offs.
func TestTooFewToSay(t *testing.T) {
	s := sample{Pairs: 10, Elapsed: time.Second, Jain: 0.9, Handoffs: 10, P50: time.Millisecond, P99: time.Second}
	for m, want := range map[metric]bool{fairness: false, handoffP50: true, handoffP99: false, pairsPerSecond: true} {
		if got := !math.IsNaN(m.of(s, 4)); got != want {
			t.Errorf("%s of 10 pairs by 4 clients says something: %v, want %v", m, got, want)
		}
	}
	if v := fairness.of(s, 2); v != 0.9 {
		t.Errorf("%s of 10 pairs by 2 clients is %v", fairness, v)
	}
}
