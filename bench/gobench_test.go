package main

import (
	"strings"
	"testing"
	"time"
)

// Targets about Go benchmarks name those that there are.
func TestGoBenchmarks(t *testing.T) {
	p := &plan{rounds: 1, timing: timing{Bench: time.Millisecond}, progress: func(string) {}}
	var packages []goPackage
	for _, b := range goBenchmarks {
		if b.dir == "../table" {
			b.pattern, _, _ = strings.Cut(b.pattern, "/")
			b.pattern += "/^10$" // a million holds take their time
		}
		packages = append(packages, b)
	}
	all, err := p.runBenchmarks(t.Context(), t.TempDir(), packages)
	if err != nil {
		t.Fatal(err)
	}
	r := &result{Machine: thisMachine(), Benchmarks: all}
	smallest := strings.NewReplacer("Holds/1000000", "Holds/10", "Waiters/100000", "Waiters/10")
	for _, g := range targets {
		var names []string
		switch from := g.from.(type) {
		case slower:
			names = []string{from.own, from.over}
		case times:
			names = []string{from.own, from.over}
		}
		for _, name := range names {
			if b := r.benchmark(smallest.Replace(name)); b == nil || len(b.Rounds) != 1 || b.Rounds[0] <= 0 {
				t.Errorf("%s, %s: benchmark %s was not run: %+v", g.id, g.what, name, b)
			}
		}
	}
}

func TestStarts(t *testing.T) {
	if testing.Short() {
		t.Skip("linking lk takes a while")
	}
	p := &plan{rounds: 1, progress: func(string) {}}
	starts, size, err := p.runStarts(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &result{Starts: starts, Binary: size}
	for _, g := range targets {
		if _, ok := g.from.(elsewhere); !ok && g.id == "G18" {
			if f, why := g.from.figure(r); f == nil || f.Median <= 0 {
				t.Errorf("%s: %v, %s", g.what, f, why)
			}
		}
	}
}
