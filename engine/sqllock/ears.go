package sqllock

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ears listen for what the database tells. They take a connection of the pool while
// something waits here, or is held for longer than a moment. MariaDB and MySQL have
// nothing like it.
type ears struct {
	e       *Engine
	stop    context.CancelFunc // nil: they are closed
	ended   chan struct{}
	works   atomic.Bool // a notice of our own has come back
	since   time.Time   // something is held
	useless time.Time   // when they were last found to hear nothing
}

const (
	heldLong  = time.Second            // then it is worth a connection
	deafPause = 30 * time.Second       // until they are tried again
	hearBound = 500 * time.Millisecond // in which a notice of our own must come back
)

func newEars(e *Engine) *ears { return &ears{e: e} }

// hear reports whether the database tells this process when it is rung for.
func (a *ears) hear() bool { return a.works.Load() }

// open opens the ears if there is something to hear, and closes them when there is not.
func (a *ears) open(waits, holds bool) {
	now := time.Now()
	if !holds {
		a.since = time.Time{}
		a.close()
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	if a.stop != nil {
		select {
		case <-a.ended:
			a.close()
			a.useless = now
		default:
		}
		return
	}
	listener, can := a.e.dialect.(interface{ channel() string })
	if !can || !waits && now.Sub(a.since) < heldLong || now.Sub(a.useless) < deafPause {
		return
	}
	ctx, stop := context.WithCancel(a.e.closing)
	a.stop, a.ended = stop, make(chan struct{})
	go func() {
		defer close(a.ended)
		defer a.works.Store(false)
		_ = a.listen(ctx, listener.channel()) // whatever it is: polling goes on
	}()
}

func (a *ears) close() {
	if a.stop == nil {
		return
	}
	a.stop()
	<-a.ended
	a.stop = nil
}

// listen listens until ctx ends or nothing is to be heard, as behind a pooler that
// gives each transaction another connection.
func (a *ears) listen(ctx context.Context, channel string) error {
	return a.e.dialect.with(ctx, a.e.db.pool, func(l link) error {
		conn := l.(postgresLink).conn
		defer conn.Close(context.WithoutCancel(ctx)) // nobody else should get one that listens
		if _, err := conn.Exec(ctx, "LISTEN "+quote(channel, `"`)); err != nil {
			return err
		}
		if err := a.tryOut(ctx, channel, conn.PgConn()); err != nil {
			return err
		}
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			a.hears(n.Payload)
		}
	})
}

// tryOut sends a notice on another connection, which has to come back.
func (a *ears) tryOut(ctx context.Context, channel string, conn *pgconn.PgConn) error {
	token := "try-" + a.e.process
	ctx, cancel := context.WithTimeout(ctx, hearBound)
	defer cancel()
	if _, err := a.e.db.pool.ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, token); err != nil {
		return err
	}
	if err := conn.WaitForNotification(ctx); err != nil { // any will do
		return err
	}
	a.works.Store(true)
	ring(a.e.watch.heard)
	return nil
}

// hears wakes this process if a notice is meant for it.
func (a *ears) hears(payload string) {
	if payload == everybody || strings.Contains(payload, a.e.process) {
		ring(a.e.watch.heard)
	}
}
