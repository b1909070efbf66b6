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

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct{ of, want int }{{1, 1}, {50, 50}, {99, 99}, {100, 100}} {
		if got := percentile(hundred, c.of); got != c.want {
			t.Errorf("percentile %d of 1..100 is %d", c.of, got)
		}
	}
	if got := percentile([]int{7}, 99); got != 7 {
		t.Errorf("percentile of one value is %d", got)
	}
	if got := percentile([]int{1, 2, 3}, 50); got != 2 {
		t.Errorf("percentile 50 of 1, 2, 3 is %d", got)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []int64
		want   float64
	}{
		{[]int64{4, 4, 4, 4}, 1},
		{[]int64{9, 0, 0, 0}, 0.25},
		{[]int64{3, 1}, 0.8},
		{[]int64{0, 0}, 0},
	} {
		if got := jain(c.shares); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("Jain's index of %v is %v, want %v", c.shares, got, c.want)
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
