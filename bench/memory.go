package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// memoryName is how -workloads names the measuring of memory.
const memoryName = "memory"

// An occupier is a peer whose server can tell how much memory it uses.
type occupier interface {
	peer
	inUse(ctx context.Context) (uint64, error) // bytes
	occupations() []occupation
}

// occupation is one way to fill a fresh server with n claims, each with an owner
// and a note of its own. What run gives to counted is what is counted.
type occupation struct {
	what string
	run  func(ctx context.Context, n int, counted func(fill func() error) error) error
}

// occupancy is what came of one.
type occupancy struct {
	Peer   string  `json:"peer"`
	What   string  `json:"what"`
	Claims int     `json:"claims"`
	Bytes  float64 `json:"bytes"` // for each, in the server, without the path's own text
}

// paths, owners and notes of claims that are counted are equally long.
func countedPath(i int) string { return fmt.Sprintf("bench/team-%05d/path-%06d", i%1000, i) }

func countedLabel(i int) lockkeeper.Label {
	return lockkeeper.Label{As: fmt.Sprintf("runner-%06d", i), Note: fmt.Sprintf("nightly build %06d", i)}
}

// measureMemory fills a server of the peer, which was just started.
func measureMemory(ctx context.Context, p occupier, o occupation, n int) (occupancy, error) {
	result := occupancy{Peer: p.about().name, What: o.what, Claims: n}
	err := o.run(ctx, n, func(fill func() error) error {
		before, err := p.inUse(ctx)
		if err != nil {
			return err
		}
		if err := fill(); err != nil {
			return err
		}
		after, err := p.inUse(ctx)
		result.Bytes = (float64(after)-float64(before))/float64(n) - float64(len(countedPath(0)))
		return err
	})
	return result, err
}

// fillers is how many goroutines fill a server.
const fillers = 64

// fill calls do for 0 to n-1, and returns the first error of each goroutine.
func fill(n int, do func(i int) error) error {
	errs := make([]error, fillers)
	var all sync.WaitGroup
	for first := range fillers {
		all.Go(func() {
			for i := first; i < n && errs[first] == nil; i += fillers {
				errs[first] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// runMemory measures every occupation on a server of its own.
func (p *plan) runMemory(ctx context.Context, dir string, installed []peer) (all []occupancy, err error) {
	for _, known := range installed {
		known, ok := known.(occupier)
		if !ok {
			continue
		}
		for i, o := range known.occupations() {
			p.progress(fmt.Sprintf("%s, %s: %s", memoryName, known.about().name, o.what))
			row, err := p.occupyAnew(ctx, dir, known.about().name, i)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", known.about().name, o.what, err)
			}
			all = append(all, row)
		}
	}
	return all, nil
}

// occupyAnew starts another server of the peer, for its i-th occupation alone.
func (p *plan) occupyAnew(ctx context.Context, dir, name string, i int) (occupancy, error) {
	var fresh occupier
	for _, other := range peers(p.sizes) {
		if other.about().name == name {
			fresh = other.(occupier)
		}
	}
	defer fresh.stop()
	if err := p.start(ctx, dir, fresh); err != nil {
		return occupancy{}, err
	}
	return measureMemory(ctx, fresh, fresh.occupations()[i], p.claims)
}
