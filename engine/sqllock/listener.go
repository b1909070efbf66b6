package sqllock

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// listener receives notices of the database. It uses a connection of the pool while a claim of this
// process waits, or is held for longer than a moment, and for a while after that. MariaDB and MySQL
// send no notices.
type listener struct {
	e       *Engine
	now     *listening // nil: it does not listen
	since   time.Time  // a claim has been held since then
	needed  time.Time  // when a claim was last held or waiting
	useless time.Time  // when listening last failed
}

// listening is one connection that listens.
type listening struct {
	stop  context.CancelFunc
	ended chan struct{}
	works atomic.Bool // a notice of this process has come back
}

const (
	worthListening = 50 * time.Millisecond  // a claim held for so long is worth a connection
	listenIdle     = 5 * time.Second        // the connection stays open this long, so that brief holds share one
	listenRetry    = 30 * time.Second       // until the next attempt to listen
	echoBound      = 500 * time.Millisecond // a notice of this process must come back within this time
)

func newListener(e *Engine) *listener { return &listener{e: e} }

// listening reports whether the database notifies this process of wakeups.
func (a *listener) listening() bool { return a.now != nil && a.now.works.Load() }

// update begins to listen if claims wait or are held for long, and ends it when there have been
// none for a while. It returns when it must be called again at the latest; zero: with the next
// change.
func (a *listener) update(waits, holds bool) time.Time {
	now := time.Now()
	if !holds {
		a.since = time.Time{}
		if idle := a.needed.Add(listenIdle); a.now != nil && now.Before(idle) {
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
	listen := a.e.dialect.listen()
	if listen == nil || now.Sub(a.useless) < listenRetry {
		return time.Time{}
	}
	if worth := a.since.Add(worthListening); !waits && now.Before(worth) {
		return worth
	}
	ctx, stop := context.WithCancel(a.e.closing)
	l := &listening{stop: stop, ended: make(chan struct{})}
	a.now = l
	a.e.running.Go(func() {
		defer close(l.ended)
		defer l.works.Store(false)
		_ = listen(ctx, a.e, l) // polling goes on
	})
	return time.Time{}
}

// close ends the listening, and does not wait for its end.
func (a *listener) close() {
	if a.now != nil {
		a.now.stop()
		a.now = nil
	}
}

// receiveNotice wakes this process if the notice is addressed to it.
func (e *Engine) receiveNotice(payload string) {
	if payload == everybody || strings.Contains(payload, e.process) {
		wake(e.wakeups.notified)
	}
}
