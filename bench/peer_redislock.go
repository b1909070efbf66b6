package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockPeer is the library bsm/redislock on one server: a script that calls SET NX PX, another
// one to release. Its waiters try again as often as its users let them.
type redislockPeer struct{ *redisServers }

// redislockRetry is the pause of the example in the library's README.
const redislockRetry = 100 * time.Millisecond

func (p *redislockPeer) about() about {
	return about{
		name: "bsm/redislock", kinds: []kind{distinct, contended, handoff}, lacks: redisMissing,
		how: "bsm/redislock, go-redis with its default pool; waiters try again every 100 ms, as in its README",
	}
}

func (p *redislockPeer) open(_ context.Context, n int) (clients, error) {
	client := redis.NewClient(&redis.Options{Addr: p.addrs()[0]})
	all := &lockers{shut: []func(){func() { client.Close() }}}
	locks := redislock.New(client)
	for range n {
		all.each = append(all.each, &redislockClient{locks: locks})
	}
	return all, nil
}

type redislockClient struct {
	locks *redislock.Client
	lock  *redislock.Lock
}

func (c *redislockClient) Acquire(ctx context.Context, path string) (err error) {
	c.lock, err = c.locks.Obtain(ctx, path, redisLeaseTime, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(redislockRetry),
	})
	return err
}

func (c *redislockClient) Release(ctx context.Context, _ string) error { return c.lock.Release(ctx) }
