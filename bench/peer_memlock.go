package main

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// memlockPeer is our engine within the process, under the API that all engines
// share. It is there for orientation.
type memlockPeer struct{ noServer }

func (p *memlockPeer) about() about {
	return about{
		name: "memlock", kinds: []kind{distinct, contended, handoff},
		how: "in this process: lockkeeper.Client on the engine memlock, one client for all",
	}
}

func (p *memlockPeer) open(_ context.Context, n int) (clients, error) {
	client := lockkeeper.New(memlock.New())
	all := &lockers{shut: []func(){func() { client.Close() }}}
	for range n {
		all.each = append(all.each, &clientLocker{client: client})
	}
	return all, nil
}

// clientLocker locks as programs do that use the Client.
type clientLocker struct {
	client *lockkeeper.Client
	hold   *lockkeeper.Hold
}

func (c *clientLocker) Acquire(ctx context.Context, path string) (err error) {
	c.hold, err = c.client.Lock(ctx, path)
	return err
}

func (c *clientLocker) Release(ctx context.Context, _ string) error { return c.hold.Release(ctx) }
