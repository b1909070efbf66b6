package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"cirello.io/pglock"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// pglockPeer is a library that locks in Postgres, by rows with a version number
// from a sequence, which a holder changes now and then as a sign of life. A client that can't
// have a lock looks again after a lease, and takes it if the number is the same.
//
// It is measured without that sign of life: the first one follows each acquire at
// once, and a release meanwhile does not find its row any more.
type pglockPeer struct{ *postgres }

// pglockLease is short, so that those in line get it sooner than by default, which
// is 20 seconds, and much longer than anybody keeps it.
const pglockLease = time.Second

func (p *pglockPeer) about() about {
	return about{
		name: pglockName, kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: fmt.Sprintf("cirello.io/pglock, one client for all, no heartbeats; on pgx, %d connections at most for all; "+
			"waiters try again after a lease, which is %s", leasePool, pglockLease),
	}
}

func (p *pglockPeer) open(_ context.Context, n int) (clients, error) {
	pool, err := sql.Open("pgx", p.url())
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { pool.Close() }}}
	pool.SetMaxOpenConns(min(n, leasePool))
	pool.SetMaxIdleConns(min(n, leasePool))
	// New insists on another driver.
	client, err := pglock.UnsafeNew(pool, pglock.WithLeaseDuration(pglockLease), pglock.WithHeartbeatFrequency(0))
	if err == nil {
		err = client.TryCreateTable()
	}
	if err != nil {
		all.close()
		return nil, err
	}
	for range n {
		all.each = append(all.each, &pglockClient{client: client})
	}
	return all, nil
}

type pglockClient struct {
	client *pglock.Client
	lock   *pglock.Lock
}

func (c *pglockClient) Acquire(ctx context.Context, path string) (err error) {
	c.lock, err = c.client.AcquireContext(ctx, path)
	return err
}

func (c *pglockClient) Release(ctx context.Context, _ string) error {
	return c.client.ReleaseContext(ctx, c.lock)
}
