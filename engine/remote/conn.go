package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Bounds of one connection.
const (
	writeTime = 20 * time.Second       // in which the server must read what one write sends
	silence   = 20 * time.Second       // after which a server that owes an answer is taken for dead
	maxUnsent = 4 << 20                // bytes that wait to be written: then callers wait
	farAway   = 250 * time.Millisecond // in which the farthest server answers
	fewCalls  = 4                      // calls that are out, up to which a caller writes by itself
	fewBytes  = 32 << 10               // that the network takes without blocking, if nothing else is on its way
)

// A conn is one connection to a server.
type conn struct {
	engine     *Engine
	net        net.Conn
	in         *bufio.Reader
	guarantees lockkeeper.Guarantees
	bell       chan struct{} // wakes the writing goroutine
	over       chan struct{} // closed when nothing more is read
	heard      atomic.Int64  // how many frames were read
	draining   atomic.Pointer[string]

	mu      sync.Mutex
	out     wire.Outbox
	spare   []byte
	writing bool
	unheard int           // bytes that were written since a frame was read
	since   int64         // how many had been read then
	room    chan struct{} // closed when there is room in out again; nil if nobody waits
	calls   calls
	names   bindings
	failed  error // why it is of no more use
}

func newConn(e *Engine, nc net.Conn, in *bufio.Reader, g lockkeeper.Guarantees) *conn {
	return &conn{
		engine: e, net: nc, in: in, guarantees: g, bell: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// call sends one request under a key, which may be none, and waits for its answer, until ctx ends.
// want is that of a claim.
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
	heard, sent := c.heard.Load(), time.Now()
	if err := c.send(ctx, m, k, cl); err != nil {
		return answer{}, unavailable(err)
	}
	select {
	case <-cl.done:
	case <-ctx.Done():
		if c.forget(m.Call) {
			c.suspect(ctx, heard, sent)
			return answer{}, unavailable(ctx.Err())
		}
		<-cl.done // it was answered at this very moment
	}
	a := cl.answer
	cl.answer, cl.want = answer{}, lockkeeper.Want{}
	callRoom.Put(cl)
	return a, a.err
}

var errSilent = errors.New("the server is silent")

// suspect takes the server for dead if nothing was heard of it in all the time
// that a call had, and that was not too short for an answer from far away. How late
// it was noticed here that the time is over says nothing about the server.
func (c *conn) suspect(ctx context.Context, heard int64, sent time.Time) {
	until, bounded := ctx.Deadline()
	if bounded && errors.Is(ctx.Err(), context.DeadlineExceeded) && c.heard.Load() == heard && until.Sub(sent) >= farAway {
		c.fail(errSilent)
	}
}

// ownSize bounds what a connection adds to a request: call, handle, key and frame.
const ownSize = 128

var errCalls = errors.New("too many calls are open")

// send numbers the request of a call, makes it name its session, and sends it. While the outbox is
// full, it waits.
func (c *conn) send(ctx context.Context, m *wire.Request, k lockkeeper.Key, cl *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx); err != nil {
		return err
	}
	number, ok := c.calls.add(cl, nil)
	if !ok {
		return errCalls
	}
	m.Call = number
	c.names.name(m, k)
	c.out.PutRequest(m)
	c.hurry()
	return nil
}

// admit waits until more may be put into out. It is called with c.mu held, and
// returns so; while it waits, c.mu is not held.
func (c *conn) admit(ctx context.Context) error {
	for c.out.Len() > maxUnsent && c.failed == nil {
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		var err error
		select {
		case <-room:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		if err != nil {
			return err
		}
	}
	return c.failed
}

// hurry sees to it that what is in out is written. With few calls out the network
// has room for one more, so that writing won't block, and the caller does it by
// itself, which saves waking another goroutine. c.mu is held.
func (c *conn) hurry() {
	if !c.writing && c.calls.open <= fewCalls && c.easy() {
		c.flushOnce()
	}
	if c.out.Len() > 0 && !c.writing {
		c.ring()
	}
}

// easy reports whether the network takes what is in out without blocking: hardly
// anything else can be on its way. Calls that were given up may be, of which a server
// that reads nothing has read nothing. c.mu is held.
func (c *conn) easy() bool {
	if now := c.heard.Load(); now != c.since {
		c.unheard, c.since = 0, now
	}
	return c.unheard+c.out.Len() <= fewBytes
}

// forget reports whether a call was still without an answer, which nobody waits
// for any more.
func (c *conn) forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls.remove(id)
}

func (c *conn) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// write writes whenever the bell rings, and looks from time to time whether the
// server still answers.
func (c *conn) write() {
	look := time.NewTicker(silence / 2)
	defer look.Stop()
	var heard int64
	var owed uint64
	for {
		select {
		case <-c.bell:
			runtime.Gosched() // whoever is about to call can share this write
			c.mu.Lock()
			for c.out.Len() > 0 && !c.writing && c.failed == nil {
				c.flushOnce()
			}
			c.mu.Unlock()
		case <-look.C:
			oldest, now := c.oldest(), c.heard.Load()
			if oldest > 0 && oldest == owed && now == heard {
				c.fail(errSilent)
			} else if oldest == 0 && now == heard {
				c.prod()
			}
			heard, owed = now, oldest
		case <-c.over:
			return
		}
	}
}

// oldest is the number of the call that waits longest; 0 if none does.
func (c *conn) oldest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls.oldest()
}

// prod has a server from which nothing was heard for a while owe an answer, if there
// is a list: one that goes on may have nothing to tell for ever, so its silence says
// nothing. It asks for nothing, which every server refuses.
func (c *conn) prod() {
	c.put(func(out *wire.Outbox) {
		if c.calls.lists == 0 || c.failed != nil {
			return
		}
		if number, ok := c.calls.add(newCall(), nil); ok {
			out.PutRequest(&wire.Request{Call: number, Ping: true})
		}
	})
}

// flushOnce writes what waits. It is called with c.mu held and nobody writing, and
// returns so; while it writes, c.mu is not held.
func (c *conn) flushOnce() {
	c.writing = true
	frames := c.out.Take(c.spare)
	c.spare = nil
	c.unheard += len(frames)
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	c.mu.Unlock()
	err := c.net.SetWriteDeadline(time.Now().Add(writeTime))
	if err == nil {
		_, err = c.net.Write(frames)
	}
	if err != nil {
		c.fail(err)
	}
	c.mu.Lock()
	c.spare = frames
	c.writing = false
}

// fail ends the connection. Everything that is out ends without an answer.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		return
	}
	if why := c.draining.Load(); why != nil {
		err = fmt.Errorf("%w (before it ended: %s)", err, *why)
	}
	c.failed = fmt.Errorf("connection to %s: %w", c.net.RemoteAddr(), err)
	open := c.calls
	c.calls = calls{}
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	c.mu.Unlock()
	c.net.Close()
	open.each(func(cl *call, l *list) {
		if cl == nil {
			l.end(unavailable(c.failed))
			return
		}
		cl.err = unavailable(c.failed)
		cl.done <- struct{}{}
	})
	c.engine.lost(c)
}

// receive takes what the server sends until the connection ends.
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
			c.fail(err)
			return
		}
		c.heard.Add(1)
		for _, m := range f.GetReplies() {
			c.deliver(m)
		}
		var all bool
		hints, all = c.hints(&f, hints[:0])
		c.engine.tell(hints)
		if f.GetMissed() || !all {
			c.engine.missed()
		}
		if why := f.GetDraining(); why != "" {
			c.draining.Store(&why)
			if c.engine.leaves(c) {
				c.fail(errDrains)
				return
			}
		}
		if f.GetRefused() != nil {
			c.fail(f.GetRefused().Read())
			return
		}
	}
}

// hints appends the hints of a frame. It reports false if the session of one is unknown, because its
// handle was bound to another session meanwhile.
func (c *conn) hints(f *wire.ServerFrame, to []lockkeeper.Status) (hints []lockkeeper.Status, all bool) {
	all = true
	for _, m := range f.GetChanged() {
		session := ""
		if m.GetHandle() != 0 {
			var known bool
			c.mu.Lock()
			session, known = c.names.session(m.GetHandle())
			c.mu.Unlock()
			if !known {
				all = false
				continue
			}
		}
		to = append(to, m.Read(session))
	}
	return to, all
}

// deliver gives an answer to whoever waits for it.
func (c *conn) deliver(m *wire.Reply) {
	c.mu.Lock()
	cl, l := c.calls.find(m.GetCall())
	if !m.GetMore() {
		c.calls.remove(m.GetCall())
	}
	if cl != nil && m.GetMore() { // the first pieces of a lease; nobody else touches it as long as it waits
		cl.take(m)
		cl = nil
	}
	c.mu.Unlock()
	switch {
	case cl != nil:
		cl.take(m)
		cl.done <- struct{}{}
	case l != nil:
		l.take(m)
	}
}
