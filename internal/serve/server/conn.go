package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
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

// A conn is one connection of a client. One goroutine reads it and calls the engine, another one
// writes what the first does not write itself, and one answers what the engine could not answer at once.
// The lock of the wire.Conn guards the fields at its end.
type conn struct {
	*wire.Conn
	server *Server
	net    net.Conn
	in     *bufio.Reader
	atWork chan struct{} // has an element for each request that an engine works on beside the reader
	work   sync.WaitGroup

	// Set by the gate, before the first request is read.
	pass     *access.Pass
	gone     <-chan struct{}           // closed when the pass is withdrawn
	identity string                    // the pass's name
	usage    *limits.Identity          // the counts of that identity
	engine   lockkeeper.Engine         // as the identity may use it
	prompt   bool                      // the engine answers out of memory
	group    lockkeeper.GroupCommitter // the engine, if it is one; else nil
	starter  lockkeeper.Starter        // the engine, if it is one; else nil

	committing queue   // answers that wait for their commits
	started    answers // of requests that the engine answers later
	bindings   bindings
	request    request // that the reader starts

	// Guarded by the lock.
	unsent    int              // bytes beyond ownUnsent counted for the identity
	missed    bool             // hints were dropped, and the client was not notified yet
	welcomed  bool             // the client has its welcome
	stated    *wire.Cluster    // what was stated last of the cluster
	finishing bool             // no further request is read
	answered  bool             // no more replies follow
	lists     map[uint64]*list // by the number of the call
	displaced map[*route]*conn // by route: the connection, alive then, from which c took it
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		server: s,
		net:    nc,
		in:     bufio.NewReaderSize(nc, ownFrame),
		atWork: make(chan struct{}, maxAtWork),
		lists:  make(map[uint64]*list),
	}
	c.Conn = wire.NewConn(nc, wire.ConnOptions{
		WriteTime:   writeTime,
		Room:        c.takeUnsent,
		BeforeWrite: c.reportNews,
	})
	return c
}

// run serves the connection until it ends. Requests that were read before the end are still answered.
func (c *conn) run(arrival *limits.Arrival) {
	err := c.handshake()
	if err != nil {
		c.refuse(err)
		c.Flush()
		c.linger()
		c.close()
		arrival.Leave()
		if c.pass != nil { // the client left after the gate admitted it
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
	c.Uncork()
	c.endQueue()
	c.started.end()
	c.work.Wait()
	c.Lock()
	c.answered = true
	c.Unlock()
	c.Signal()
	<-writer
	c.close() // hints that still come are dropped
	c.restoreRoutes()
}

// read reads frames and serves them until the connection ends.
func (c *conn) read() error {
	for {
		room, err := c.frame(wire.MaxFrame, c.serve)
		if room > 0 {
			c.usage.GiveRoom(room)
		}
		if err != nil {
			return err
		}
		if !c.another() {
			c.Uncork()
		}
	}
}

// serve starts the requests of a frame one by one, as it reads them. Then it handles the flows.
func (c *conn) serve(message []byte) error {
	c.Cork()
	c.Lock()
	over := c.finishing
	c.Unlock()
	if over {
		return io.EOF
	}
	flows, n := false, 0
	e := wire.NewElements(message)
	for e.Next() {
		switch e.Field() {
		case wire.FieldRequests:
			if n++; n%yieldAfter == 0 {
				runtime.Gosched() // without it, a frame of many requests delays other connections by 10 ms
			}
			if err := c.handle(e.Message()); err != nil {
				return err
			}
		case wire.FieldFlows:
			flows = true
		case wire.FieldHandshake:
			return fmt.Errorf("%w: a second hello", wire.ErrFrame)
		}
	}
	if e.Err() != nil || !flows {
		return e.Err()
	}
	for e = wire.NewElements(message); e.Next(); {
		if e.Field() == wire.FieldFlows {
			call, credit, stop, err := wire.ParseFlow(e.Message())
			if err != nil {
				return err
			}
			c.steer(call, credit, stop)
		}
	}
	return nil
}

// another reports whether the whole next frame has arrived. If so, the answers so far can share a
// write with the answers to that frame.
func (c *conn) another() bool {
	head, _ := c.in.Peek(min(c.in.Buffered(), binary.MaxVarintLen32))
	length, n := binary.Uvarint(head)
	return n > 0 && uint64(c.in.Buffered()) >= uint64(n)+length
}

// refuse handles the error that ended reading. It sends the error to a client that broke the
// protocol or may repeat its requests, logs it, and stops the client's lists.
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
	c.Lock()
	defer c.Unlock()
	for _, l := range c.lists {
		l.stop()
	}
}

// finish ends the connection once the requests that were read are answered.
func (c *conn) finish() {
	c.Lock()
	defer c.Unlock()
	c.finishing = true
	// This wakes the reader. A request that is not read yet counts as one that arrives later.
	_ = c.net.SetReadDeadline(longAgo)
}

var longAgo = time.Unix(1, 0)

// readBy sets the deadline for reading, unless the connection is finishing; the zero time is none.
func (c *conn) readBy(at time.Time) error {
	c.Lock()
	defer c.Unlock()
	if c.finishing {
		at = longAgo
	}
	return c.net.SetReadDeadline(at)
}

// lives reports whether the connection has not failed.
func (c *conn) lives() bool {
	c.Lock()
	defer c.Unlock()
	return c.Err() == nil
}

// close ends the connection now.
func (c *conn) close() { c.Fail(net.ErrClosed) }
