package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// mariaLeasePeer is the lease row in MariaDB.
type mariaLeasePeer struct{ *mariaDB }

const (
	mariaLeaseTable = `CREATE TABLE IF NOT EXISTS lease (name varchar(255) COLLATE utf8mb4_bin PRIMARY KEY, owner ` +
		`varchar(255) NOT NULL, expires datetime(3) NOT NULL)`

	// Assignments happen from left to right: a client that became the owner sets the end.
	mariaLeaseAcquire = `INSERT INTO lease (name, owner, expires) VALUES (?, ?, now(3) + INTERVAL 30 SECOND)
		ON DUPLICATE KEY UPDATE owner = IF(expires < now(3), VALUES(owner), owner),
		expires = IF(owner = VALUES(owner), VALUES(expires), expires)`
	mariaLeaseDelete = `DELETE FROM lease WHERE name = ? AND owner = ?`
)

// mariaDeadlock is the error of a statement that the server has undone, since it and another one waited
// for each other's locks on rows or on gaps between them.
const mariaDeadlock = 1213

func (p *mariaLeasePeer) about() about {
	return about{
		name: "mariadb, lease row", kinds: []kind{distinct, contended, handoff}, lacks: p.missing,
		how: fmt.Sprintf("as in Postgres: INSERT, or UPDATE if it has expired, and DELETE; fsync; %d connections at most "+
			"for all; waiters try again every %s", leasePool, leaseRetry),
	}
}

func (p *mariaLeasePeer) open(ctx context.Context, n int) (clients, error) {
	pool, err := p.pool(min(n, leasePool))
	if err != nil {
		return nil, err
	}
	all := &lockers{shut: []func(){func() { pool.Close() }}}
	if _, err := pool.ExecContext(ctx, mariaLeaseTable); err != nil {
		all.close()
		return nil, err
	}
	run := func(ctx context.Context, statement string, args ...any) (int64, error) {
		for {
			done, err := pool.ExecContext(ctx, statement, args...)
			var refused *mysql.MySQLError
			if errors.As(err, &refused) && refused.Number == mariaDeadlock {
				continue
			}
			if err != nil {
				return 0, err
			}
			return done.RowsAffected()
		}
	}
	for i := range n {
		all.each = append(all.each, &leaseClient{fmt.Sprintf("owner-%08d", i), mariaLeaseAcquire, mariaLeaseDelete, run})
	}
	return all, nil
}
