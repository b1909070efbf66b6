package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// benchmarksName is how -workloads names the Go benchmarks.
const benchmarksName = "Go benchmarks"

// goPackage has benchmarks that targets are about.
type goPackage struct{ dir, pattern string }

// goBenchmarks are run once in a round. Their folders stand beside this module's.
var goBenchmarks = []goPackage{
	{"../semaphore", `^BenchmarkSlots$/^goroutines=/^keys=/^(by_key|counters.*|x_sync.*|ref-counted.*)$`},
	{"../engine/memlock", `^Benchmark(OnePath|Free)$`},
	{"../table", `^BenchmarkReleaseWith(Holds|Waiters)$/^(10|100000|1000000)$`},
}

// program is where the compiled test is, below dir.
func (b goPackage) program(dir string) string {
	return filepath.Join(dir, filepath.Base(b.dir)+".test")
}

// goBenchmark is one benchmark in all rounds.
type goBenchmark struct {
	Name   string    `json:"name"`   // without the number of cores
	Rounds []float64 `json:"rounds"` // nanoseconds of one operation
}

// runBenchmarks compiles the packages and runs their benchmarks in rounds.
func (p *plan) runBenchmarks(ctx context.Context, dir string, packages []goPackage) (all []*goBenchmark, err error) {
	for _, b := range packages {
		p.progress("compiling the benchmarks of " + b.dir)
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", b.program(dir), ".")
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s can't be compiled: %w\n%s", b.dir, err, out)
		}
	}
	byName := map[string]*goBenchmark{}
	for round := range p.rounds {
		for i := range packages {
			b := packages[(i+round)%len(packages)]
			p.progress(fmt.Sprintf("%s, round %d of %d: %s", benchmarksName, round+1, p.rounds, b.dir))
			figures, err := b.run(ctx, dir, p.timing.Bench)
			if err != nil {
				return nil, err
			}
			for _, f := range figures {
				if byName[f.name] == nil {
					byName[f.name] = &goBenchmark{Name: f.name}
					all = append(all, byName[f.name])
				}
				byName[f.name].Rounds = append(byName[f.name].Rounds, f.ns)
			}
		}
	}
	return all, nil
}

// run runs the benchmarks of a package, each for about this long.
func (b goPackage) run(ctx context.Context, dir string, each time.Duration) ([]benchmarkFigure, error) {
	cmd := exec.CommandContext(ctx, b.program(dir), "-test.run", "^$", "-test.bench", b.pattern, "-test.benchtime",
		each.String())
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the benchmarks of %s: %w\n%s", b.dir, err, out)
	}
	return benchmarkFigures(out), nil
}

// benchmarkFigure is a line of the output of benchmarks.
type benchmarkFigure struct {
	name string
	ns   float64
}

// coresSuffix is what package testing appends to the name of a benchmark.
var coresSuffix = regexp.MustCompile(`-\d+$`)

// benchmarkFigures reads the output of benchmarks, and ignores what it does not know.
func benchmarkFigures(out []byte) (all []benchmarkFigure) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // name, iterations, value, unit ...
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") || fields[3] != "ns/op" {
			continue
		}
		if ns, err := strconv.ParseFloat(fields[2], 64); err == nil {
			all = append(all, benchmarkFigure{coresSuffix.ReplaceAllString(fields[0], ""), ns})
		}
	}
	return all
}

// slots is a benchmark of package semaphore, for times. CORES stands for the number of cores.
func slots(load, peer string) string {
	return "BenchmarkSlots/goroutines=" + load + "/" + strings.ReplaceAll(peer, " ", "_")
}

// benchmark finds a benchmark by name.
func (r *result) benchmark(name string) *goBenchmark {
	name = strings.ReplaceAll(name, "CORES", strconv.Itoa(r.Machine.Cores))
	for _, b := range r.Benchmarks {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// slower is the source of a ratio of times: the first benchmark's by the second's, round by round.
type slower struct{ own, over string }

func (s slower) figure(r *result) (*spread, string) {
	own, over := r.benchmark(s.own), r.benchmark(s.over)
	switch {
	case own == nil:
		return nil, s.own + " was not run"
	case over == nil:
		return nil, s.over + " was not run"
	}
	return ratiosOf(own.Rounds, over.Rounds), ""
}

// times is the source of a ratio of speeds: the second benchmark's time by the first's.
type times struct{ own, over string }

func (t times) figure(r *result) (*spread, string) {
	f, why := slower{t.over, t.own}.figure(r)
	return f, why
}

// ratiosOf divides round by round.
func ratiosOf(own, over []float64) *spread {
	var ratios []float64
	for i := range min(len(own), len(over)) {
		ratios = append(ratios, own[i]/over[i])
	}
	s := spreadOf(ratios)
	return &s
}
