package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresLeasePeer is the lease row in Postgres.
type postgresLeasePeer struct{ *postgres }

const (
	postgresLeaseTable = `CREATE TABLE IF NOT EXISTS lease (name text PRIMARY KEY, owner text NOT NULL, expires ` +
		`timestamptz NOT NULL)`

	postgresLeaseAcquire = `INSERT INTO lease (name, owner, expires) VALUES ($1, $2, now() + interval '30 seconds')
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE lease.expires < now()`
	postgresLeaseDelete = `DELETE FROM lease WHERE name = $1 AND owner = $2`
)

func (p *postgresLeasePeer) about() about {
	return about{
		name: leaseName, kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: fmt.Sprintf("a row for each lock: INSERT, or UPDATE if it has expired, and DELETE; fsync; %d connections at "+
			"most for all; waiters try again every %s", leasePool, leaseRetry),
	}
}

func (p *postgresLeasePeer) open(ctx context.Context, n int) (clients, error) {
	config, err := pgxpool.ParseConfig(p.url())
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(min(n, leasePool))
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){pool.Close}}
	if _, err := pool.Exec(ctx, postgresLeaseTable); err != nil {
		all.close()
		return nil, err
	}
	run := func(ctx context.Context, statement string, args ...any) (int64, error) {
		done, err := pool.Exec(ctx, statement, args...)
		return done.RowsAffected(), err
	}
	for i := range n {
		all.each = append(all.each, &leaseClient{fmt.Sprintf("owner-%08d", i), postgresLeaseAcquire, postgresLeaseDelete,
			run})
	}
	return all, nil
}
