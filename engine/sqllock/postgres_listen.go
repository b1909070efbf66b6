package sqllock

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// listen implements dialect.
func (d postgresDialect) listen() func(context.Context, *Engine, *listening) error {
	return d.receiveNotices
}

// receiveNotices receives notices until ctx ends. It fails if none arrive, as behind a pooler that
// gives each transaction another connection.
func (d postgresDialect) receiveNotices(ctx context.Context, e *Engine, n *listening) error {
	return d.with(ctx, e.db.pool, func(l link) error {
		conn := l.(postgresLink).conn
		defer conn.Close(context.WithoutCancel(ctx)) // it must not go back to the pool
		if _, err := conn.Exec(ctx, "LISTEN "+quote(d.channel(), `"`)); err != nil {
			return err
		}
		if err := d.awaitEcho(ctx, e, n, conn.PgConn()); err != nil {
			return err
		}
		for {
			notice, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			e.receiveNotice(notice.Payload)
		}
	})
}

// awaitEcho sends a notice on another connection, and waits for any notice.
func (d postgresDialect) awaitEcho(ctx context.Context, e *Engine, n *listening, conn *pgconn.PgConn) error {
	sending, sent := context.WithTimeout(e.cutting, attemptBound)
	defer sent()
	if _, err := e.db.pool.ExecContext(sending, "SELECT pg_notify($1, $2)", d.channel(), "try-"+e.process); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, echoBound)
	defer cancel()
	if err := conn.WaitForNotification(ctx); err != nil {
		return err
	}
	n.works.Store(true)
	wake(e.wakeups.notified)
	return nil
}
