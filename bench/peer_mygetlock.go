package main

import (
	"context"
	"database/sql"
)

// getLockPeer is what MariaDB and MySQL have by themselves: locks that the
// server keeps in memory for a connection, and that end with it. A client that
// waits occupies a connection, as one that holds does.
type getLockPeer struct{ *mariaDB }

// getLockBound in seconds is longer than any round.
const getLockBound = 30

func (p *getLockPeer) about() about {
	return about{
		name: "mariadb, GET_LOCK", kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: "GET_LOCK and RELEASE_LOCK on a connection each; waiters wait in the server",
	}
}

func (p *getLockPeer) open(ctx context.Context, n int) (clients, error) {
	pool, err := p.pool(n)
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { pool.Close() }}}
	for range n {
		conn, err := pool.Conn(ctx)
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, func() { conn.Close() })
		all.each = append(all.each, &getLockClient{conn})
	}
	return all, nil
}

type getLockClient struct{ conn *sql.Conn }

func (c *getLockClient) Acquire(ctx context.Context, path string) error {
	return c.ask(ctx, "SELECT GET_LOCK(?, ?)", path, getLockBound)
}

func (c *getLockClient) Release(ctx context.Context, path string) error {
	return c.ask(ctx, "SELECT RELEASE_LOCK(?)", path)
}

// ask runs a statement whose answer is 1 if it went well.
func (c *getLockClient) ask(ctx context.Context, statement string, args ...any) error {
	var done sql.NullInt64
	err := c.conn.QueryRowContext(ctx, statement, args...).Scan(&done)
	if err == nil && done.Int64 != 1 {
		err = errNotHeld
	}
	return err
}
