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
	next    uint64        // number of the next request
	calls   map[uint64]*call
	lists   map[uint64]*list
	failed  error // why it is of no more use
}

// A call waits for one answer.
type call struct {
	done    chan struct{} // filled when it is answered; never closed, so that it can be used again
	batch   *batch        // that it is part of, and which is told instead; nil if of none
	session string
	answer
}

// An answer is what came of a call: an error, a lease, a status, how the server is,
// or nothing.
type answer struct {
	err    error
	lease  lockkeeper.Lease
	status lockkeeper.Status
	about  *wire.About
}

var callRoom = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newConn(e *Engine, nc net.Conn, in *bufio.Reader, g lockkeeper.Guarantees) *conn {
	return &conn{
		engine: e, net: nc, in: in, guarantees: g, bell: make(chan struct{}, 1), over: make(chan struct{}),
		calls: make(map[uint64]*call), lists: make(map[uint64]*list),
	}
}

// call sends one request and waits for its answer, until ctx ends.
func (e *Engine) call(ctx context.Context, m *wire.Request) (answer, error) {
	m.Traceparent = e.traceparent(ctx)
	if m.SizeVT() > wire.MaxFrame-16 {
		return answer{}, lockkeeper.Invalid("the request is larger than a server takes: %d bytes, of at most %d", m.SizeVT(),
			wire.MaxFrame)
	}
	c, err := e.connection(ctx)
	if err != nil {
		return answer{}, err
	}
	cl := callRoom.Get().(*call)
	cl.session = m.Session
	heard, sent := c.heard.Load(), time.Now()
	if err := c.send(ctx, m, func() { c.calls[m.Id] = cl }); err != nil {
		return answer{}, unavailable(err)
	}
	select {
	case <-cl.done:
	case <-ctx.Done():
		if c.forget(m.Id) {
			c.suspect(ctx, heard, sent)
			return answer{}, unavailable(ctx.Err())
		}
		<-cl.done // it was answered at this very moment
	}
	a := cl.answer
	cl.answer = answer{}
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

// send numbers the request, has it registered under its number, and sends it. If
// much waits to be sent, it waits too.
func (c *conn) send(ctx context.Context, m *wire.Request, register func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx); err != nil {
		return err
	}
	c.next++
	m.Id = c.next
	register()
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
	if !c.writing && len(c.calls) <= fewCalls && c.easy() {
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
	_, waits := c.calls[id]
	delete(c.calls, id)
	return waits
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
	oldest := uint64(0)
	for id := range c.calls {
		if oldest == 0 || id < oldest {
			oldest = id
		}
	}
	return oldest
}

// prod has a server from which nothing was heard for a while owe an answer, if there
// is a list: one that goes on may have nothing to tell for ever, so its silence says
// nothing. It asks for nothing, which every server refuses.
func (c *conn) prod() {
	c.put(func(out *wire.Outbox) {
		if len(c.lists) > 0 && c.failed == nil {
			c.next++
			c.calls[c.next] = &call{done: make(chan struct{}, 1)}
			out.PutRequest(&wire.Request{Id: c.next})
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
	calls, lists := c.calls, c.lists
	c.calls, c.lists = nil, nil
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	c.mu.Unlock()
	c.net.Close()
	for _, cl := range calls {
		cl.err = unavailable(c.failed)
		cl.answered()
	}
	for _, l := range lists {
		l.end(unavailable(c.failed))
	}
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
		hints = hints[:0]
		for _, m := range f.GetChanged() {
			hints = append(hints, m.Read(""))
		}
		c.engine.tell(hints)
		if f.GetMissed() {
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

// deliver gives an answer to whoever waits for it.
func (c *conn) deliver(m *wire.Reply) {
	c.mu.Lock()
	cl, l := c.calls[m.GetId()], c.lists[m.GetId()]
	if !m.GetMore() {
		delete(c.calls, m.GetId())
		delete(c.lists, m.GetId())
	}
	if cl != nil && m.GetMore() { // the first pieces of a lease; nobody else touches it as long as it waits
		cl.take(m)
		cl = nil
	}
	c.mu.Unlock()
	switch {
	case cl != nil:
		cl.take(m)
		cl.answered()
	case l != nil:
		l.take(m)
	}
}

// answered tells whoever waits for the call.
func (cl *call) answered() {
	if cl.batch == nil {
		cl.done <- struct{}{}
	} else if cl.batch.left.Add(-1) == 0 {
		close(cl.batch.done)
	}
}

// take adds one reply to the answer.
func (cl *call) take(m *wire.Reply) {
	switch {
	case m.GetError() != nil:
		cl.err = m.GetError().Read()
	case m.GetLease() != nil:
		before := cl.lease.Claims
		cl.lease = m.GetLease().Read(cl.session)
		cl.lease.Claims = append(before, cl.lease.Claims...)
	case m.GetStatus() != nil:
		cl.status = m.GetStatus().Read(cl.session)
	case m.GetAbout() != nil:
		cl.about = m.GetAbout()
	}
}
