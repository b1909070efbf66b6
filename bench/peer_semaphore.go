package main

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// semaphorePeer has a fair semaphore of this process for each path, and never frees one. It is the
// upper bound to compare with: no engine, no network.
type semaphorePeer struct{ noServer }

func (p *semaphorePeer) about() about {
	return about{
		name: "x/sync semaphore", kinds: []kind{distinct, contended, handoff},
		how: "in this process: semaphore.Weighted in a sync.Map",
	}
}

func (p *semaphorePeer) open(_ context.Context, n int) (clients, error) {
	all := &lockers{}
	byPath := &sync.Map{}
	for range n {
		all.each = append(all.each, &semaphoreClient{byPath: byPath})
	}
	return all, nil
}

type semaphoreClient struct {
	byPath *sync.Map
	held   *semaphore.Weighted
}

func (c *semaphoreClient) Acquire(ctx context.Context, path string) error {
	known, ok := c.byPath.Load(path)
	if !ok {
		known, _ = c.byPath.LoadOrStore(path, semaphore.NewWeighted(1))
	}
	c.held = known.(*semaphore.Weighted)
	return c.held.Acquire(ctx, 1)
}

func (c *semaphoreClient) Release(context.Context, string) error {
	c.held.Release(1)
	return nil
}
