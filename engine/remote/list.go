package remote

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// window is the number of statuses of a list that the server may send ahead of the reader.
const window = 256

// A list is an open list at the server.
type list struct {
	mu    sync.Mutex
	ready []lockkeeper.Status // at most window
	ended bool
	err   error         // why it ended; nil if it is complete
	wake  chan struct{} // ready, ended or err changed
}

// take adds one reply of the server.
func (l *list) take(a *wire.Answer) {
	var status lockkeeper.Status
	var err error
	switch {
	case !a.More && a.Result == wire.ResultError:
		var invalid error
		if err, invalid = a.Error(); invalid != nil {
			err = unavailable(invalid)
		}
	case a.More && a.Result == wire.ResultStatus:
		if err = a.Status("", nil, &status); err != nil {
			err = unavailable(err)
		}
	case a.More:
		err = unavailable(errAnswer)
	}
	if !a.More || err != nil {
		l.end(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) >= window { // the server sends more than it was given credit for
		l.ended, l.err = true, unavailable(errAnswer)
	} else {
		l.ready = append(l.ready, status)
	}
	l.signal()
}

func (l *list) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended, l.err = true, err
	}
	l.signal()
}

func (l *list) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next returns and removes the statuses that are ready.
func (l *list) next() (ready []lockkeeper.Status, ended bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready, l.ready = l.ready, nil
	return ready, l.ended, l.err
}

// List implements lockkeeper.Engine.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		for {
			c, err := e.connection(ctx)
			begun := false
			if err == nil {
				begun, err = c.list(ctx, &q, yield)
			}
			if c != nil && !begun && moves(err) {
				<-c.over // from then on the engine makes another connection
				continue
			}
			if err != nil {
				yield(lockkeeper.Status{}, err)
			}
			return
		}
	}
}

// list yields the statuses of a list, and reports whether there were any. An error has ended the list, and is not
// yielded yet.
func (c *conn) list(ctx context.Context, q *lockkeeper.Query, yield func(lockkeeper.Status, error) bool) (
	begun bool, err error) {
	l := &list{wake: make(chan struct{}, 1)}
	id, err := c.begin(l, q, c.engine.traceparent(ctx))
	if err != nil {
		return false, unavailable(err)
	}
	defer c.leave(id)
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			if q.Follow {
				return begun, nil
			}
			return begun, unavailable(ctx.Err())
		}
		ready, ended, err := l.next()
		for i := range ready {
			begun = true
			if !yield(ready[i], nil) {
				return begun, nil
			}
		}
		if ended {
			return begun, err
		}
		c.credit(id, len(ready))
	}
}

// moves reports whether a connection has ended because the client moves to another server. The client
// avoids each server that it has left, so this does not go on without an end.
func moves(err error) bool { return errors.Is(err, errDrains) || errors.Is(err, errSuspended) }

// begin asks for a list.
func (c *conn) begin(l *list, q *lockkeeper.Query, parent string) (number uint64, err error) {
	c.Lock()
	defer c.End(false)
	if err := c.Err(); err != nil {
		return 0, c.explain(err)
	}
	number, ok := c.calls.add(nil, l)
	if !ok {
		return 0, errCalls
	}
	c.follow() // its statuses come when they want
	c.Out.PutRequest(&wire.Request{Call: number, List: wire.NewQuery(q, window), Traceparent: parent})
	return number, nil
}

// leave stops a list that has not ended.
func (c *conn) leave(number uint64) {
	c.Lock()
	if c.calls.remove(number) {
		c.Out.PutFlow(&wire.Flow{Call: number, Stop: true})
	}
	c.End(false)
}

// credit lets the server send n more statuses of a list.
func (c *conn) credit(number uint64, n int) {
	c.Lock()
	c.Out.PutFlow(&wire.Flow{Call: number, Credit: uint32(n)})
	c.End(false)
}
