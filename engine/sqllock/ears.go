package sqllock

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ears listen for what the database tells. They take a connection of the pool while
// something waits here, or is held for longer than a moment, and for a while after that.
// MariaDB and MySQL have nothing like it.
type ears struct {
	e       *Engine
	now     *listening // nil: they are closed
	since   time.Time  // something is held
	needed  time.Time  // when something was last held or waited for
	useless time.Time  // when they were last found to hear nothing
}

// listening is one connection that listens.
type listening struct {
	stop  context.CancelFunc
	ended chan struct{}
	works atomic.Bool // a notice of our own has come back
}

const (
	heldLong  = 50 * time.Millisecond  // then it is worth a connection
	earsIdle  = 5 * time.Second        // the connection stays open this long, so that brief holds share one
	deafPause = 30 * time.Second       // until they are tried again
	hearBound = 500 * time.Millisecond // in which a notice of our own must come back
)

func newEars(e *Engine) *ears { return &ears{e: e} }

// hear reports whether the database tells this process when it is rung for.
func (a *ears) hear() bool { return a.now != nil && a.now.works.Load() }

// open opens the ears if there is something to hear, and closes them when there has been
// nothing for a while. It returns when it must be called again at the latest; zero if the
// next change is soon enough.
func (a *ears) open(waits, holds bool) time.Time {
	now := time.Now()
	if !holds {
		a.since = time.Time{}
		if idle := a.needed.Add(earsIdle); a.now != nil && now.Before(idle) {
			return idle
		}
		a.close()
		return time.Time{}
	}
	a.needed = now
	if a.since.IsZero() {
		a.since = now
	}
	if a.now != nil {
		select {
		case <-a.now.ended:
			a.close()
			a.useless = now
		default:
		}
		return time.Time{}
	}
	listener, can := a.e.dialect.(listenable)
	if !can || now.Sub(a.useless) < deafPause {
		return time.Time{}
	}
	if worth := a.since.Add(heldLong); !waits && now.Before(worth) {
		return worth
	}
	ctx, stop := context.WithCancel(a.e.closing)
	l := &listening{stop: stop, ended: make(chan struct{})}
	a.now = l
	a.e.running.Go(func() {
		defer close(l.ended)
		defer l.works.Store(false)
		_ = l.listen(ctx, a.e, listener.channel()) // whatever it is: polling goes on
	})
	return time.Time{}
}

// close has the listening end. It does not wait for that.
func (a *ears) close() {
	if a.now != nil {
		a.now.stop()
		a.now = nil
	}
}

// listen listens until ctx ends or nothing is to be heard, as behind a pooler that
// gives each transaction another connection.
func (n *listening) listen(ctx context.Context, e *Engine, channel string) error {
	return e.dialect.with(ctx, e.db.pool, func(l link) error {
		conn := l.(postgresLink).conn
		defer conn.Close(context.WithoutCancel(ctx)) // nobody else should get one that listens
		if _, err := conn.Exec(ctx, "LISTEN "+quote(channel, `"`)); err != nil {
			return err
		}
		if err := n.tryOut(ctx, e, channel, conn.PgConn()); err != nil {
			return err
		}
		for {
			notice, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			e.hears(notice.Payload)
		}
	})
}

// tryOut sends a notice on another connection, which has to come back.
func (n *listening) tryOut(ctx context.Context, e *Engine, channel string, conn *pgconn.PgConn) error {
	telling, told := context.WithTimeout(e.cutting, attemptBound)
	defer told()
	if _, err := e.db.pool.ExecContext(telling, "SELECT pg_notify($1, $2)", channel, "try-"+e.process); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, hearBound)
	defer cancel()
	if err := conn.WaitForNotification(ctx); err != nil { // any will do
		return err
	}
	n.works.Store(true)
	ring(e.watch.heard)
	return nil
}

// hears wakes this process if a notice is meant for it.
func (e *Engine) hears(payload string) {
	if payload == everybody || strings.Contains(payload, e.process) {
		ring(e.watch.heard)
	}
}

// listenable is a dialect whose database notifies clients that listen on a channel.
type listenable interface {
	channel() string
}
