package main

import (
	"context"
	"time"
)

// A lease row is what programs write for themselves that lock in a database: a
// row for each lock, with its owner and the time when it expires, by the
// database's clock. One statement acquires it, one releases it, each a transaction
// that is on the disk when it is answered. A client that can't have it asks again after a
// pause.
const (
	leaseRetry = 10 * time.Millisecond // as those who lock in Redis do

	// leasePool is how many connections the clients share at most. With half or twice
	// as many, rows in Postgres, in MariaDB and of pglock are no faster.
	leasePool = 32
)

// leaseClient locks by rows.
type leaseClient struct {
	owner             string
	acquires, deletes string // statements; path and owner are their arguments

	// run runs one, and tells how many rows it has changed.
	run func(ctx context.Context, statement string, args ...any) (int64, error)
}

func (c *leaseClient) Acquire(ctx context.Context, path string) error {
	for {
		changed, err := c.run(ctx, c.acquires, path, c.owner)
		if err != nil || changed > 0 {
			return err
		}
		again := time.NewTimer(leaseRetry)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return ctx.Err()
		}
	}
}

func (c *leaseClient) Release(ctx context.Context, path string) error {
	deleted, err := c.run(ctx, c.deletes, path, c.owner)
	if err == nil && deleted != 1 {
		err = errNotHeld
	}
	return err
}
