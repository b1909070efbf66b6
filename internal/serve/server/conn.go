package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A conn is one connection of a client. One goroutine reads it and lets the engine
// work, another one writes what the first does not write itself.
type conn struct {
	server *Server
	net    net.Conn
	in     *bufio.Reader
	atWork chan struct{} // a place for each request that an engine works on beside the reader
	bell   chan struct{} // wakes the writing goroutine
	work   sync.WaitGroup

	// Set by the gate, before the first request is read.
	pass     *access.Pass
	gone     <-chan struct{}   // closed when the pass is withdrawn
	identity string            // the pass's name
	usage    *limits.Identity  // counts of what its identity uses of this server
	engine   lockkeeper.Engine // as the identity may use it
	prompt   bool              // the engine answers out of memory

	bindings bindings

	mu        sync.Mutex
	room      sync.Cond // there is room in out again, or the connection has failed
	out       wire.Outbox
	sending   int              // bytes of it that are being written
	unsent    int              // bytes beyond ownUnsent counted for the identity, for both
	spare     []byte           // what was written last, to be filled again
	writing   bool             // somebody writes: whoever puts more into out need not
	reading   bool             // the reader is at work without waiting for anything, and writes when it is done
	missed    bool             // hints were dropped, and the client was not told yet
	welcomed  bool             // the client was let in, and told so
	finishing bool             // no further request is read
	answered  bool             // nothing more will be put into out
	failed    bool             // it can't be written to any more
	lists     map[uint64]*list // by the number of the request
	taken     map[*route]*conn // routes that led to another connection before, which lived
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s, net: nc, in: bufio.NewReaderSize(nc, ownFrame), atWork: make(chan struct{}, maxAtWork),
		bell: make(chan struct{}, 1), lists: make(map[uint64]*list),
	}
	c.room.L = &c.mu
	return c
}

// run serves the connection until it ends. What the engine works on when the
// client stops asking is still answered.
func (c *conn) run(arrival *limits.Arrival) {
	err := c.hello()
	if err != nil {
		c.refuse(err)
		c.flush()
		c.linger()
		c.close()
		arrival.Leave()
		if c.pass != nil { // it went away as it was let in
			c.usage.Give(limits.Connections, 1)
		}
		return
	}
	arrival.Leave()
	defer c.usage.Give(limits.Connections, 1)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		c.write()
	}()
	c.refuse(c.read())
	c.mu.Lock()
	c.reading = false // each answer is sent when it is there
	c.mu.Unlock()
	c.ring()
	c.work.Wait()
	c.mu.Lock()
	c.answered = true
	c.mu.Unlock()
	c.ring()
	<-writer
	c.close() // hints may still come: nobody reads them
	c.giveBack()
}

// read takes requests and has them answered until the connection ends.
func (c *conn) read() error {
	for {
		var f wire.ClientFrame
		room, err := c.frame(&f, wire.MaxFrame)
		if err == nil {
			err = c.serve(&f)
		}
		if room > 0 {
			c.usage.GiveRoom(room)
		}
		if err != nil {
			return err
		}
	}
}

// serve answers the requests of one frame.
func (c *conn) serve(f *wire.ClientFrame) error {
	c.mu.Lock()
	c.reading = true
	over := c.finishing
	c.mu.Unlock()
	if over {
		return io.EOF
	}
	for i, m := range f.GetRequests() {
		if i%turn == turn-1 {
			runtime.Gosched() // without it, a frame of many requests delays other connections by 10 ms
		}
		if err := c.start(m); err != nil {
			return err
		}
	}
	for _, m := range f.GetFlows() {
		c.steer(m)
	}
	if !c.another() {
		c.flush()
	}
	return nil
}

// another reports whether a whole frame has arrived, so that reading it will not
// wait: then what was answered can wait for what that one asks.
func (c *conn) another() bool {
	head, _ := c.in.Peek(min(c.in.Buffered(), binary.MaxVarintLen32))
	length, n := binary.Uvarint(head)
	return n > 0 && uint64(c.in.Buffered()) >= uint64(n)+length
}

// refuse takes note of why no more is read, tells the client if that is its fault,
// and ends its lists.
func (c *conn) refuse(err error) {
	log := c.server.logger
	switch {
	case errors.Is(err, lockkeeper.ErrUnavailable):
		c.post(&wire.ServerFrame{Refused: wire.NewError(err)})
	case errors.Is(err, wire.ErrFrame) || errors.Is(err, errProtocol):
		log.Warn("client breaks the protocol", "from", c.net.RemoteAddr(), "identity", c.identity, "error", err)
		c.post(&wire.ServerFrame{Refused: wire.NewError(lockkeeper.Invalid("%s", err))})
	case !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed):
		log.Debug("connection ends", "from", c.net.RemoteAddr(), "identity", c.identity, "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lists {
		l.stop()
	}
}

// finish has the connection end once what was read is answered.
func (c *conn) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finishing = true
	// Whoever reads now is woken; a request that has arrived and was not read is
	// as one that comes a moment later.
	_ = c.net.SetReadDeadline(longAgo)
}

var longAgo = time.Unix(1, 0)

// readBy bounds reading, if the connection is not to end anyway; the zero time is no
// bound.
func (c *conn) readBy(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finishing {
		at = longAgo
	}
	return c.net.SetReadDeadline(at)
}

// lives reports whether the client is still connected.
func (c *conn) lives() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.failed
}

// close ends the connection now.
func (c *conn) close() {
	c.mu.Lock()
	c.failed = true
	c.out.Take(nil)
	c.fits()
	c.room.Broadcast()
	c.mu.Unlock()
	c.net.Close()
}
