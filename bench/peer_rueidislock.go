package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockPeer is the library rueidislock: a lock is one key, or the majority of three, all of
// them at one server or cluster. Client-side caching wakes its waiters, those of one process one
// after the other.
type rueidislockPeer struct {
	*redisServers
	keys int32 // 1 or 3
}

func (p *rueidislockPeer) about() about {
	a := about{
		name: rueidislockName, kinds: []kind{distinct, contended, handoff}, lacks: redisMissing,
		how: fmt.Sprintf("rueidislock, one locker for all, %d keys for each lock, on one server; waiters are woken by "+
			"client-side caching", p.keys),
	}
	if p.keys == 1 {
		a.name, a.how = rueidislockOneName, "the same with one key"
	}
	return a
}

func (p *rueidislockPeer) open(_ context.Context, n int) (clients, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: p.addrs()},
		KeyMajority:    (p.keys + 1) / 2,
		KeyValidity:    redisLeaseTime,
		NoLoopTracking: true, // its README advises it for servers as new as this one
	})
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){locker.Close}}
	for range n {
		all.each = append(all.each, &rueidislockClient{locker: locker})
	}
	return all, nil
}

type rueidislockClient struct {
	locker  rueidislock.Locker
	release context.CancelFunc
}

// Acquire waits until ctx ends, which must not end the lock too, as it would by the library.
func (c *rueidislockClient) Acquire(ctx context.Context, path string) error {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, giveUp)
	_, release, err := c.locker.WithContext(waiting, path)
	if err != nil {
		giveUp()
		return err
	}
	keep()
	c.release = func() {
		release()
		giveUp()
	}
	return nil
}

// Release returns when the keys are deleted. The library does not say whether they were its own.
func (c *rueidislockClient) Release(context.Context, string) error {
	c.release()
	return nil
}
