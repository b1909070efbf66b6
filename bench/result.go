package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"time"
)

// result is a whole run. -json writes what was measured; the figures follow from that.
type result struct {
	Machine    machine           `json:"machine"`
	Timing     timing            `json:"timing"`
	Sizes      sizes             `json:"sizes"`
	How        map[string]string `json:"how"`               // by peer
	Missing    map[string]string `json:"missing,omitempty"` // peers that were not measured, and why
	Tables     []*table          `json:"tables"`
	Memory     []occupancy       `json:"memory,omitempty"`
	Benchmarks []*goBenchmark    `json:"benchmarks,omitempty"`
	Starts     []*start          `json:"starts,omitempty"`
	Binary     int64             `json:"binary,omitempty"` // bytes of lk without symbols
}

// newRow begins a row of a table, a memory, a benchmark or a start in what -json writes. The
// encoder escapes quotes within texts, so it occurs nowhere else.
var newRow = regexp.MustCompile(`\{"(peer|kind|name|what)":|` +
	`"(timing|sizes|how|missing|tables|memory|benchmarks|starts|binary)":`)

// encode writes a run with a line for each row.
func (r *result) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(newRow.ReplaceAll(text, []byte("\n$0")), '\n'), nil
}

// readRun reads what encode has written, and works out the figures.
func readRun(file string) (*result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &result{}
	decode := json.NewDecoder(bytes.NewReader(text))
	decode.DisallowUnknownFields()
	if err := decode.Decode(r); err != nil {
		return nil, fmt.Errorf("%s is not a run: %w", file, err)
	}
	for _, t := range r.Tables {
		t.workOut()
	}
	return r, nil
}

// keep adds what an earlier run has and this one has not: tables with a peer that was not measured
// again, and all that is not a table if it was not measured again. Tables of this run come first.
func (r *result) keep(old *result) {
	for _, t := range old.Tables {
		now := r.tables(t.workload)
		if !slices.ContainsFunc(now, func(now *table) bool { return now.hasAllOf(t) }) {
			r.Tables = append(r.Tables, t)
		}
	}
	slices.SortStableFunc(r.Tables, func(a, b *table) int {
		return slices.Index(workloads, a.workload) - slices.Index(workloads, b.workload)
	})
	if r.Memory == nil {
		r.Memory = old.Memory
	}
	if r.Benchmarks == nil {
		r.Benchmarks = old.Benchmarks
	}
	if r.Starts == nil {
		r.Starts, r.Binary = old.Starts, old.Binary
	}
	for name, how := range old.How {
		if r.How[name] == "" {
			r.How[name] = how
		}
	}
}

// hasAllOf reports whether t has a row that did not fail for each row of old.
func (t *table) hasAllOf(old *table) bool {
	return !slices.ContainsFunc(old.Rows, func(other *row) bool {
		now := t.row(other.Peer)
		return now == nil || now.Failure != "" && other.Failure == ""
	})
}

// tables are the tables of a workload, the latest first. Each has peers of its own, and its ratios
// are between them.
func (r *result) tables(w workload) (found []*table) {
	for _, t := range r.Tables {
		if t.Kind == w.Kind && t.Clients == w.Clients {
			found = append(found, t)
		}
	}
	return found
}

// table is what came of one workload.
type table struct {
	workload
	Date string `json:"date"`
	Rows []*row `json:"rows"`
}

// row is what one peer did in one workload.
type row struct {
	Peer    string            `json:"peer"`
	Rounds  []sample          `json:"rounds,omitempty"`
	Failure string            `json:"failure,omitempty"` // of the first round that failed
	Figures map[metric]figure `json:"-"`
}

// metric is what a figure is about.
type metric string

const (
	pairsPerSecond metric = "pairs/s"
	clientCPU      metric = "client µs/pair" // processor time
	serverCPU      metric = "server µs/pair"
	allCPU         metric = "CPU" // of clients and servers; only its ratio is printed
	fairness       metric = "Jain"
	handoffP50     metric = "hand-off p50 µs"
	handoffP99     metric = "hand-off p99 µs"
)

// figure is one metric over all rounds, and its ratio to the reference, which is
// taken round by round: what slows down the machine for a while slows down both.
type figure struct {
	spread
	Ratio *spread // nil if there is no reference
}

// of is the metric in one round; NaN if it says nothing there.
func (m metric) of(s sample, clients int) float64 {
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	switch {
	case m == pairsPerSecond:
		return float64(s.Pairs) / s.Elapsed.Seconds()
	case m == clientCPU && s.Pairs > 0:
		return perPair(s.ClientCPU, s.Pairs)
	case m == serverCPU && s.ServerCPU > 0 && s.Pairs > 0:
		return perPair(s.ServerCPU, s.Pairs)
	case m == allCPU && s.Pairs > 0:
		return perPair(s.ClientCPU+s.ServerCPU, s.Pairs)
	case m == fairness && s.Pairs >= evenTurns(clients):
		return s.Jain
	case m == handoffP50 && s.Handoffs > 0:
		return micro(s.P50)
	case m == handoffP99 && s.Handoffs >= 100:
		return micro(s.P99)
	}
	return math.NaN()
}

// metricsOf are the metrics of a workload.
func metricsOf(k kind) []metric {
	switch k {
	case contended:
		return []metric{pairsPerSecond, fairness, handoffP50, handoffP99, clientCPU, serverCPU, allCPU}
	case handoff:
		return []metric{handoffP50, handoffP99, fairness, clientCPU, serverCPU, allCPU}
	}
	return []metric{pairsPerSecond, clientCPU, serverCPU, allCPU}
}

// others is how many cores other processes used during the rounds.
func (t *table) others() spread {
	var cores []float64
	for _, row := range t.Rows {
		for _, s := range row.Rounds {
			cores = append(cores, s.OtherCPU.Seconds()/s.Elapsed.Seconds())
		}
	}
	return spreadOf(cores)
}

func (t *table) row(peer string) *row {
	for _, r := range t.Rows {
		if r.Peer == peer {
			return r
		}
	}
	return nil
}

// workOut works out the figures of all rows; a peer that failed has none.
func (t *table) workOut() {
	for _, r := range t.Rows {
		if r.Failure != "" {
			continue
		}
		r.Figures = map[metric]figure{}
		for _, m := range metricsOf(t.Kind) {
			if f, ok := t.figure(m, r, t.row(t.Reference)); ok {
				r.Figures[m] = f
			}
		}
	}
}

// figure is a metric of a row beside another one, which may be nil. It is not ok
// if the rounds say nothing about it.
func (t *table) figure(m metric, r, reference *row) (f figure, ok bool) {
	var own, ratios []float64
	for i, s := range r.Rounds {
		v := m.of(s, t.Clients)
		if math.IsNaN(v) {
			continue
		}
		own = append(own, v)
		if reference == nil || reference.Failure != "" || i >= len(reference.Rounds) {
			continue
		}
		if base := m.of(reference.Rounds[i], t.Clients); base > 0 {
			ratios = append(ratios, v/base)
		}
	}
	f.spread = spreadOf(own)
	if len(ratios) > 0 {
		s := spreadOf(ratios)
		f.Ratio = &s
	}
	return f, len(own) > 0
}
