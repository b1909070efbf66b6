package main

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
)

// redsyncPeer is Redlock as published, by the library redsync: SET NX PX at every server at once,
// a script at every server to release. A waiter tries again after 50 to 250 ms, as it comes.
type redsyncPeer struct{ *redisServers }

func (p *redsyncPeer) about() about {
	return about{
		name: redsyncName + p.String(), kinds: []kind{distinct, contended, handoff}, lacks: redisMissing,
		how: "go-redsync/redsync, go-redis with its default pool for each server; waiters try again after 50 to 250 ms, " +
			"its default",
	}
}

func (p *redsyncPeer) open(_ context.Context, n int) (clients, error) {
	all := &lockers{}
	var pools []redis.Pool
	for _, addr := range p.addrs() {
		client := goredis9.NewClient(&goredis9.Options{Addr: addr})
		all.shut = append(all.shut, func() { client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	for range n {
		all.each = append(all.each, &redsyncClient{locks: locks})
	}
	return all, nil
}

type redsyncClient struct {
	locks *redsync.Redsync
	mutex *redsync.Mutex
}

func (c *redsyncClient) Acquire(ctx context.Context, path string) error {
	// By default it gives up after 32 tries.
	c.mutex = c.locks.NewMutex(path, redsync.WithExpiry(redisLeaseTime), redsync.WithTries(math.MaxInt32))
	return c.mutex.LockContext(ctx)
}

func (c *redsyncClient) Release(ctx context.Context, _ string) error {
	released, err := c.mutex.UnlockContext(ctx)
	if !released {
		return errors.Join(errNotHeld, err)
	}
	return nil // a minority of the servers may have refused
}
