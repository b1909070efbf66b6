package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
)

// plan is what is to be run.
type plan struct {
	peers     *regexp.Regexp // nil: all
	workloads *regexp.Regexp // nil: all
	rounds    int
	timing    timing
	claims    int // that memory is measured with
	sizes     sizes
	dir       string    // where temporary folders are made; "" is the usual place
	must      bool      // a peer that is not installed is a failure
	log       io.Writer // what servers print
	progress  func(string)
}

// run starts the servers, measures, and stops them, also when ctx ends.
func (p *plan) run(ctx context.Context) (*result, error) {
	dir, err := os.MkdirTemp(p.dir, "lockkeeper-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// A database does not run as root: started by root it is somebody else, who has
	// to get to the folder that is its own.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	r := &result{
		Machine: thisMachine(),
		Timing:  p.timing,
		Sizes:   p.sizes,
		How:     map[string]string{},
		Missing: map[string]string{},
	}
	installed, err := p.installed(r)
	if err != nil {
		return nil, err
	}
	if r.Tables, err = p.runTables(ctx, dir, installed); err != nil {
		return nil, err
	}
	if p.chosen(memoryName) {
		if r.Memory, err = p.runMemory(ctx, dir, installed); err != nil {
			return nil, err
		}
	}
	if p.peers == nil && p.chosen(benchmarksName) {
		if r.Benchmarks, err = p.runBenchmarks(ctx, dir, goBenchmarks); err != nil {
			return nil, err
		}
	}
	if p.peers == nil && p.chosen(startsName) {
		if r.Starts, r.Binary, err = p.runStarts(ctx, dir); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// chosen reports whether -workloads matches the name.
func (p *plan) chosen(name string) bool { return p.workloads == nil || p.workloads.MatchString(name) }

// installed are the chosen peers, but for those that are not installed, of which
// the result tells.
func (p *plan) installed(r *result) (here []peer, err error) {
	for _, peer := range p.chosenPeers() {
		a := peer.about()
		if a.lacks != nil {
			if err := a.lacks(); err != nil && p.must {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			} else if err != nil {
				r.Missing[a.name] = err.Error()
				continue
			}
		}
		r.How[a.name] = a.how
		here = append(here, peer)
	}
	return here, nil
}

// start starts the peer in a folder of its own below dir.
func (p *plan) start(ctx context.Context, dir string, peer peer) error {
	p.progress("starting " + peer.about().name)
	own, err := os.MkdirTemp(dir, "*")
	if err != nil {
		return err
	}
	if err := peer.start(ctx, place{dir: own, log: p.log}); err != nil {
		return fmt.Errorf("%s: %w", peer.about().name, err)
	}
	return nil
}

// runTables starts all that has something to do in the chosen workloads, and runs
// these.
func (p *plan) runTables(ctx context.Context, dir string, installed []peer) (tables []*table, err error) {
	chosen := p.chosenWorkloads()
	var ready []peer
	for _, peer := range installed {
		a := peer.about()
		if !slices.ContainsFunc(chosen, func(w workload) bool { return slices.Contains(a.kinds, w.Kind) }) {
			continue
		}
		defer peer.stop()
		if err := p.start(ctx, dir, peer); err != nil {
			return nil, err
		}
		ready = append(ready, peer)
	}
	for _, w := range chosen {
		t, err := p.runWorkload(ctx, w, ready)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// runWorkload goes round by round through the peers, beginning with another one
// each time.
func (p *plan) runWorkload(ctx context.Context, w workload, ready []peer) (*table, error) {
	t := &table{workload: w, Date: now()}
	var able []peer
	for _, peer := range ready {
		if a := peer.about(); slices.Contains(a.kinds, w.Kind) {
			able = append(able, peer)
			t.Rows = append(t.Rows, &row{Peer: a.name})
		}
	}
	for round := range p.rounds {
		for i := range able {
			i = (i + round) % len(able)
			row := t.Rows[i]
			if row.Failure != "" {
				continue
			}
			p.progress(fmt.Sprintf("%s, round %d of %d: %s", w.name(), round+1, p.rounds, row.Peer))
			s, err := measureEnough(ctx, w, able[i], p.timing)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				row.Failure = err.Error()
				continue
			}
			row.Rounds = append(row.Rounds, s)
		}
	}
	t.workOut()
	return t, nil
}

func (p *plan) chosenWorkloads() (chosen []workload) {
	for _, w := range workloads {
		if p.chosen(w.name()) {
			chosen = append(chosen, w)
		}
	}
	return chosen
}

// chosenPeers are those that -peers matches and the references.
func (p *plan) chosenPeers() (chosen []peer) {
	ws := p.chosenWorkloads()
	for _, peer := range peers(p.sizes) {
		name := peer.about().name
		refers := slices.ContainsFunc(ws, func(w workload) bool { return w.Reference == name })
		if refers || p.peers == nil || p.peers.MatchString(name) {
			chosen = append(chosen, peer)
		}
	}
	return chosen
}

// failures lists the peers that failed somewhere, and why.
func (r *result) failures() (names []string) {
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			if row.Failure != "" {
				names = append(names, fmt.Sprintf("%s in %s: %s", row.Peer, t.name(), row.Failure))
			}
		}
	}
	return names
}
