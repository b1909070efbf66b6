package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// advisoryPeer is what Postgres has by itself: locks that the server keeps in
// memory for a connection, and that end with it. It writes nothing to the disk,
// and a client that waits occupies a connection, as one that holds does.
type advisoryPeer struct{ *postgres }

func (p *advisoryPeer) about() about {
	return about{
		name: "postgres, advisory", kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: "pg_advisory_lock and pg_advisory_unlock on a connection each; waiters wait in the server",
	}
}

func (p *advisoryPeer) open(ctx context.Context, n int) (clients, error) {
	all := &lockers{}
	for range n {
		conn, err := pgx.Connect(ctx, p.url())
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, func() { closePgx(conn) })
		all.each = append(all.each, &advisoryClient{conn})
	}
	return all, nil
}

// closePgx says good-bye, but waits for it no longer than for any server to end.
func closePgx(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	conn.Close(ctx)
}

type advisoryClient struct{ conn *pgx.Conn }

func (c *advisoryClient) Acquire(ctx context.Context, path string) error {
	_, err := c.conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", path)
	return err
}

func (c *advisoryClient) Release(ctx context.Context, path string) error {
	var held bool
	err := c.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", path).Scan(&held)
	if err == nil && !held {
		err = errNotHeld
	}
	return err
}
