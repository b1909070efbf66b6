package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Bounds of one connection.
const (
	writeTime = 20 * time.Second       // for one write
	silence   = 20 * time.Second       // a server that owes an answer and sends nothing for this long is dead
	maxUnsent = 4 << 20                // bytes not yet written: beyond it, callers wait
	farAway   = 250 * time.Millisecond // the longest round trip to a working server
	fewCalls  = 4                      // while at most this many calls are open, a caller writes its request itself
)

// A conn is one connection to a server. The lock of the wire.Conn guards the fields at its end.
type conn struct {
	*wire.Conn
	engine     *Engine
	net        net.Conn
	in         *bufio.Reader
	guarantees lockkeeper.Guarantees
	over       chan struct{} // closed when the last frame is processed
	draining   atomic.Pointer[string]

	// Guarded by the lock.
	calls calls
	names bindings
}

func newConn(e *Engine, nc net.Conn, in *bufio.Reader, g lockkeeper.Guarantees) *conn {
	c := &conn{engine: e, net: nc, in: in, guarantees: g, over: make(chan struct{})}
	c.Conn = wire.NewConn(nc, wire.ConnOptions{
		WriteTime: writeTime,
		Room:      func(unsent int) bool { return unsent <= maxUnsent },
		Failed:    c.failed,
	})
	return c
}

// call sends one request, under a key unless that is zero, and waits for its answer until ctx ends.
// For a claim, want is its argument, which completes the answer; otherwise it is nil.
func (e *Engine) call(ctx context.Context, m *wire.Request, k lockkeeper.Key, want *lockkeeper.Want) (answer, error) {
	m.Traceparent = e.traceparent(ctx)
	m.LowestOpen, m.Acked = k.LowestOpen, k.Acked
	if m.SizeVT() > wire.MaxFrame-ownSize-len(k.Session) {
		return answer{}, lockkeeper.Invalid("the request is larger than a server takes: %d bytes, of at most %d", m.SizeVT(),
			wire.MaxFrame)
	}
	c, err := e.connection(ctx)
	if err != nil {
		return answer{}, err
	}
	cl := callRoom.Get().(*call)
	cl.session = k.Session
	if s := m.GetAttach(); s != nil {
		cl.session = s.Id
	}
	if want != nil {
		cl.want = *want
	}
	frames, sent := c.Frames(), time.Now()
	if err := c.send(ctx, m, k, cl); err != nil {
		return answer{}, unavailable(err)
	}
	select {
	case <-cl.done:
	case <-ctx.Done():
		if c.forget(m.Call) {
			c.suspect(ctx, frames, sent)
			return answer{}, unavailable(ctx.Err())
		}
		<-cl.done // the answer came at this moment
	}
	a := cl.answer
	cl.answer, cl.want = answer{}, lockkeeper.Want{}
	callRoom.Put(cl)
	return a, a.err
}

var errSilent = errors.New("the server is silent")

// suspect ends the connection if the server sent nothing between sent and the deadline of ctx, and
// that time was at least farAway. It compares with the deadline, not with the present time: a
// process that notices the deadline late must not blame the server.
func (c *conn) suspect(ctx context.Context, frames int64, sent time.Time) {
	until, bounded := ctx.Deadline()
	if bounded && errors.Is(ctx.Err(), context.DeadlineExceeded) && c.Frames() == frames && until.Sub(sent) >= farAway {
		c.Fail(errSilent)
	}
}

// ownSize bounds what a connection adds to a request: call, handle, key and frame.
const ownSize = 128

var errCalls = errors.New("too many calls are open")

// send numbers the request of a call, makes it name its session, and sends it. It waits for room
// until ctx ends.
func (c *conn) send(ctx context.Context, m *wire.Request, k lockkeeper.Key, cl *call) error {
	if err := c.Begin(ctx); err != nil {
		return c.explain(err)
	}
	number, ok := c.calls.add(cl, nil)
	if !ok {
		c.End(false)
		return errCalls
	}
	m.Call = number
	c.names.name(m, k)
	c.Out.PutRequest(m)
	c.End(c.calls.open <= fewCalls)
	return nil
}

// forget closes a call whose caller has given up. It reports false if the call was answered before.
func (c *conn) forget(id uint64) bool {
	c.Lock()
	defer c.Unlock()
	return c.calls.remove(id)
}

// write is the writing goroutine. It also checks every silence/2 whether the server still
// answers.
func (c *conn) write() {
	check := time.NewTicker(silence / 2)
	defer check.Stop()
	var frames int64
	var owed uint64
	for {
		select {
		case <-c.Wake():
			runtime.Gosched() // goroutines that are about to call can share this write
			c.Flush()
		case <-check.C:
			oldest, now := c.oldest(), c.Frames()
			if oldest > 0 && oldest == owed && now == frames {
				c.Fail(errSilent)
			} else if oldest == 0 && now == frames {
				c.ping()
			}
			frames, owed = now, oldest
		case <-c.over:
			return
		}
	}
}

// oldest returns the order of the call that has waited longest; 0 if none waits.
func (c *conn) oldest() uint64 {
	c.Lock()
	defer c.Unlock()
	return c.calls.oldest()
}

// ping asks for an answer if only lists are open: a server has nothing to say about a list without
// changes, so its silence means nothing.
func (c *conn) ping() {
	c.Lock()
	if c.calls.lists > 0 && c.Err() == nil {
		if number, ok := c.calls.add(newCall(), nil); ok {
			c.Out.PutRequest(&wire.Request{Call: number, Ping: true})
		}
	}
	c.End(false)
}

// explain adds the server's address to the error of a connection, and the server's reason if it
// drained.
func (c *conn) explain(err error) error {
	if why := c.draining.Load(); why != nil {
		err = fmt.Errorf("%w (before it ended: %s)", err, *why)
	}
	return fmt.Errorf("connection to %s: %w", c.net.RemoteAddr(), err)
}

// failed ends all open calls and lists of the connection, which has failed.
func (c *conn) failed(cause error) {
	c.Lock()
	open := c.calls
	c.calls = calls{}
	c.Unlock()
	err := unavailable(c.explain(cause))
	open.each(func(cl *call, l *list) {
		if cl == nil {
			l.end(err)
			return
		}
		cl.err = err
		cl.done <- struct{}{}
	})
	c.engine.lost(c, cause)
}

// receive processes the frames of the server until the connection ends.
func (c *conn) receive() {
	defer close(c.over)
	var room []byte
	var hints []lockkeeper.Status
	for {
		var f wire.ServerFrame
		var err error
		if room, err = readFrame(c.in, &f, room); err != nil {
			if err == io.EOF {
				err = errors.New("the server ended it")
			}
			c.Fail(err)
			return
		}
		c.Received()
		for _, m := range f.GetReplies() {
			c.deliver(m)
		}
		var all bool
		hints, all = c.hints(&f, hints[:0])
		c.engine.deliverHints(hints)
		if f.GetMissed() || !all {
			c.engine.missed()
		}
		if why := f.GetDraining(); why != "" {
			c.draining.Store(&why)
			if c.engine.leaves(c) {
				c.Fail(errDrains)
				return
			}
		}
		if f.GetRefused() != nil {
			c.Fail(f.GetRefused().Read())
			return
		}
	}
}

// hints appends the hints of a frame. It reports false if it dropped one, whose handle was bound to
// another session meanwhile.
func (c *conn) hints(f *wire.ServerFrame, to []lockkeeper.Status) (hints []lockkeeper.Status, all bool) {
	all = true
	for _, m := range f.GetChanged() {
		session := ""
		if m.GetHandle() != 0 {
			var known bool
			c.Lock()
			session, known = c.names.session(m.GetHandle())
			c.Unlock()
			if !known {
				all = false
				continue
			}
		}
		to = append(to, m.Read(session))
	}
	return to, all
}

// deliver adds a reply to its call or list, and completes a call with the last one.
func (c *conn) deliver(m *wire.Reply) {
	c.Lock()
	cl, l := c.calls.find(m.GetCall())
	if !m.GetMore() {
		c.calls.remove(m.GetCall())
	}
	if cl != nil && m.GetMore() { // a piece of a lease; the caller reads the answer only when it is complete
		cl.take(m)
		cl = nil
	}
	c.Unlock()
	switch {
	case cl != nil:
		cl.take(m)
		cl.done <- struct{}{}
	case l != nil:
		l.take(m)
	}
}
