package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startsName is how -workloads names the measuring of how long programs take to start.
const startsName = "start"

// Names of the programs that are started.
const (
	trueStart    = "true"
	flockStart   = "flock f true"
	runStart     = "lk run -- true"
	cobraStart   = "empty program with cobra"
	versionStart = "lk version"
)

// start is how long one program takes from its start to its end.
type start struct {
	What   string    `json:"what"`
	Rounds []float64 `json:"rounds"` // milliseconds: the median of the starts of a round
}

// startsPerRound is how often each program is started in a round.
const startsPerRound = 15

// runStarts builds lk, and starts it and the others in turn. It returns the size of lk too, in
// bytes and without symbols.
func (p *plan) runStarts(ctx context.Context, dir string) (all []*start, size int64, err error) {
	p.progress("building lk")
	lk, empty := filepath.Join(dir, "lk"), filepath.Join(dir, "empty")
	if err := build(ctx, "..", lk, "./cmd/lk"); err != nil {
		return nil, 0, err
	}
	if err := build(ctx, ".", empty, "./emptycobra"); err != nil {
		return nil, 0, err
	}
	info, err := os.Stat(lk)
	if err != nil {
		return nil, 0, err
	}
	file := filepath.Join(dir, "locks.db")
	commands := []struct {
		what  string
		words []string
	}{
		{trueStart, []string{"true"}},
		{flockStart, []string{"flock", filepath.Join(dir, "f"), "true"}},
		{runStart, []string{lk, "run", "--engine", "sqlite:" + file, "bench", "--", "true"}},
		{cobraStart, []string{empty}},
		{versionStart, []string{lk, "version"}},
	}
	for _, c := range commands {
		all = append(all, &start{What: c.what})
	}
	for round := range p.rounds {
		p.progress(fmt.Sprintf("%s, round %d of %d", startsName, round+1, p.rounds))
		took := make([][]float64, len(commands))
		for n := range startsPerRound * len(commands) {
			i := (n + round) % len(commands)
			ms, err := timeStart(ctx, commands[i].words)
			if err != nil {
				return nil, 0, err
			}
			took[i] = append(took[i], ms)
		}
		for i := range all {
			all[i].Rounds = append(all[i].Rounds, spreadOf(took[i]).Median)
		}
	}
	return all, info.Size(), nil
}

// build builds a program without symbols and without C, as releases are, and copies it, as installing does.
// Starts of the linker's file take 1.2 to 1.4 times the processor time, perhaps because the linker writes it by a
// mapping, which leaves single pages in the cache of the kernel.
func build(ctx context.Context, dir, to, pkg string) error {
	linked := to + ".linked"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", linked, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s can't be built: %w\n%s", pkg, err, out)
	}
	program, err := os.ReadFile(linked)
	if err != nil {
		return err
	}
	if err := os.Remove(linked); err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o700)
}

// timeStart returns the milliseconds that a command takes.
func timeStart(ctx context.Context, words []string) (float64, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", words, err, out)
	}
	return time.Since(began).Seconds() * 1e3, nil
}

// started is the source of a ratio of the times of two programs.
type started struct{ own, over string }

func (s started) figure(r *result) (*spread, string) {
	var own, over []float64
	for _, one := range r.Starts {
		switch one.What {
		case s.own:
			own = one.Rounds
		case s.over:
			over = one.Rounds
		}
	}
	if own == nil || over == nil {
		return nil, "programs were not started"
	}
	return ratiosOf(own, over), ""
}

// binarySize is the source of the size of lk.
type binarySize struct{}

func (binarySize) figure(r *result) (*spread, string) {
	if r.Binary == 0 {
		return nil, "lk was not built"
	}
	mb := float64(r.Binary) / 1e6
	return &spread{mb, mb, mb}, ""
}
