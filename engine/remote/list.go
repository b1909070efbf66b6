package remote

import (
	"context"
	"iter"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// window is how many statuses of one list the server may send ahead of whoever
// reads them.
const window = 256

// A list is one that the server answers.
type list struct {
	mu    sync.Mutex
	ready []lockkeeper.Status // at most window
	ended bool
	err   error         // why it ended; nil if there is no more
	bell  chan struct{} // something was added
}

// take takes in one reply of the server.
func (l *list) take(m *wire.Reply) {
	if !m.GetMore() {
		var err error
		if m.GetError() != nil {
			err = m.GetError().Read()
		}
		l.end(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) >= window { // the server sends more than it was given credit for
		l.ended, l.err = true, unavailable(errAnswer)
	} else {
		l.ready = append(l.ready, m.GetStatus().Read(""))
	}
	l.ring()
}

func (l *list) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended, l.err = true, err
	}
	l.ring()
}

func (l *list) ring() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

// next takes what is ready.
func (l *list) next() (ready []lockkeeper.Status, ended bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready, l.ready = l.ready, nil
	return ready, l.ended, l.err
}

// List implements lockkeeper.Engine.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		c, err := e.connection(ctx)
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		l := &list{bell: make(chan struct{}, 1)}
		id, err := c.begin(l, &q, e.traceparent(ctx))
		if err != nil {
			yield(lockkeeper.Status{}, unavailable(err))
			return
		}
		defer c.leave(id)
		for {
			select {
			case <-l.bell:
			case <-ctx.Done():
				if !q.Follow {
					yield(lockkeeper.Status{}, unavailable(ctx.Err()))
				}
				return
			}
			ready, ended, err := l.next()
			for i := range ready {
				if !yield(ready[i], nil) {
					return
				}
			}
			if ended {
				if err != nil {
					yield(lockkeeper.Status{}, err)
				}
				return
			}
			c.put(func(out *wire.Outbox) { out.PutFlow(&wire.Flow{Call: id, Credit: uint32(len(ready))}) })
		}
	}
}

// begin asks for a list.
func (c *conn) begin(l *list, q *lockkeeper.Query, parent string) (id uint64, err error) {
	c.put(func(out *wire.Outbox) {
		if err = c.failed; err != nil {
			return
		}
		var ok bool
		if id, ok = c.calls.add(nil, l); !ok {
			err = errCalls
			return
		}
		out.PutRequest(&wire.Request{Call: id, List: wire.NewQuery(q, window), Traceparent: parent})
	})
	return id, err
}

// leave says that no more of a list is wanted, if it has not ended.
func (c *conn) leave(id uint64) {
	c.put(func(out *wire.Outbox) {
		if c.calls.remove(id) {
			out.PutFlow(&wire.Flow{Call: id, Stop: true})
		}
	})
}

// put adds to what is to be sent.
func (c *conn) put(add func(*wire.Outbox)) {
	c.mu.Lock()
	add(&c.out)
	c.mu.Unlock()
	c.ring()
}
