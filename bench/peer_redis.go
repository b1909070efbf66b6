package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// redisPeer is Redis as its users lock with it: SET NX PX to acquire, a script to
// release, and another try after a while if somebody else has it. The library
// pipelines by itself what several goroutines ask for at once.
type redisPeer struct{ redisServer }

// redisRetry is how long a waiter waits before it tries again.
const redisRetry = 10 * time.Millisecond

func (p *redisPeer) about() about {
	return about{
		name: rueidisName, kinds: []kind{distinct, contended, handoff}, lacks: redisMissing,
		how: "SET NX PX, release by a script; pipelines by itself on its own connections; waiters try again every 10 ms",
	}
}

func (p *redisPeer) open(_ context.Context, n int) (clients, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.process.addr}})
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){client.Close}}
	script := rueidis.NewLuaScript(deleteIfMine)
	for i := range n {
		all.each = append(all.each, &redisClient{client, script, fmt.Sprintf("owner-%08d", i)})
	}
	return all, nil
}

type redisClient struct {
	client rueidis.Client
	script *rueidis.Lua
	owner  string
}

func (c *redisClient) Acquire(ctx context.Context, path string) error {
	for {
		err := c.client.Do(ctx, c.client.B().Arbitrary("SET").Keys(path).Args(c.owner, "NX", "PX",
			redisLease).Build()).Error()
		if !rueidis.IsRedisNil(err) {
			return err
		}
		again := time.NewTimer(redisRetry)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

func (c *redisClient) Release(ctx context.Context, path string) error {
	deleted, err := c.script.Exec(ctx, c.client, []string{path}, []string{c.owner}).AsInt64()
	if err == nil && deleted != 1 {
		err = errNotHeld
	}
	return err
}
