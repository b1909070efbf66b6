package server

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// reply puts an answer into the outbox. If the client has not read what it has got
// already, it waits until it has: who does not read is not answered.
func (c *conn) reply(m *wire.Reply) {
	// Of a lease no piece may be missing: it could tell of an end (R12).
	piece := m.GetMore() && m.GetLease() == nil
	if (piece || m.GetError().GetCode() == wire.Code_CODE_DENIED) && c.withdrawn() {
		return // the client shows what it has now on another connection, and asks again
	}
	c.mu.Lock()
	for !c.fits() && !c.failed {
		if c.writing {
			c.room.Wait()
		} else {
			c.flushLocked()
		}
	}
	if !c.failed {
		c.out.PutReply(m)
	}
	ring := !c.reading && !c.writing
	c.mu.Unlock()
	if ring {
		c.ring()
	}
}

// fits reports whether the outbox may take more. Its share grows while the identity's bound allows,
// and is given back when the client has read enough. The caller holds c.mu.
func (c *conn) fits() bool {
	have := c.out.Len() + c.sending
	if c.unsent > 0 && have <= ownUnsent {
		c.usage.Give(limits.Unsent, c.unsent)
		c.unsent = 0
	}
	for have > ownUnsent+c.unsent {
		if have > maxUnsent || c.usage.Take(limits.Unsent, ownUnsent) != nil {
			return false
		}
		c.unsent += ownUnsent
	}
	return true
}

// withdrawn reports whether the client's pass is.
func (c *conn) withdrawn() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// post sends a frame of its own, such as the welcome. It does not wait.
func (c *conn) post(m *wire.ServerFrame) {
	c.mu.Lock()
	if !c.failed {
		c.out.PutFrame(m)
	}
	c.mu.Unlock()
	c.ring()
}

// tell sends hints, or drops them where too much waits already. It does not wait.
// Of a server that is about to end no grants are told. Whose pass is withdrawn is
// told nothing, so that the writer comes to an end.
func (c *conn) tell(statuses []lockkeeper.Status, ending bool) {
	if c.withdrawn() {
		return
	}
	c.mu.Lock()
	for i := range statuses {
		if ending && statuses[i].State == lockkeeper.Held {
			continue
		}
		if c.missed || !c.fits() {
			c.missed = true
			break
		}
		if !c.failed {
			c.out.PutChanged(c.hint(&statuses[i]))
		}
	}
	ring := !c.reading && !c.writing
	c.mu.Unlock()
	if ring {
		c.ring()
	}
}

// hint returns a status as a message, whose session has its handle in place of its id.
func (c *conn) hint(s *lockkeeper.Status) *wire.Status {
	handle := c.bindings.of(s.Ref.Session)
	if handle == 0 {
		return wire.NewStatus(s, "")
	}
	m := wire.NewStatus(s, s.Ref.Session)
	m.Handle = handle
	return m
}

// miss has the client told that it may have missed hints. It does not wait.
func (c *conn) miss() {
	c.mu.Lock()
	c.missed = true
	c.mu.Unlock()
	c.ring()
}

// ring wakes the writing goroutine.
func (c *conn) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// write writes whenever the bell rings, until all is answered and sent, or can't be.
// When the client's pass is withdrawn, it is told so, and no more is read.
func (c *conn) write() {
	withdrawn := c.gone
	for {
		select {
		case <-c.bell:
			c.flush()
		case <-withdrawn:
			withdrawn = nil
			c.server.logger.Info("a pass is withdrawn, and its connection ended", "from", c.net.RemoteAddr(), "identity",
				c.identity)
			c.post(&wire.ServerFrame{Refused: wire.NewError(errWithdrawn)})
			c.finish()
		}
		c.mu.Lock()
		over := c.answered && (c.failed || c.out.Len() == 0 && !c.writing)
		c.mu.Unlock()
		if over {
			return
		}
	}
}

var errWithdrawn = &lockkeeper.Error{
	Err: lockkeeper.ErrDenied,
	Detail: "the token or certificate by which this client was let in has expired or was withdrawn: its locks stay " +
		"until their sessions' TTL ends",
}

// flush writes what waits, unless somebody else does so already: then that one does.
func (c *conn) flush() {
	c.mu.Lock()
	c.reading = false
	if !c.writing {
		c.flushLocked()
	}
	c.mu.Unlock()
}

// flushLocked writes until nothing waits. It is called with c.mu held, and nobody
// writing, and returns so; while it writes, c.mu is not held.
func (c *conn) flushLocked() {
	c.writing = true
	for (c.out.Len() > 0 || c.missed) && !c.failed {
		if c.missed && c.fits() {
			c.missed = false
			c.out.PutFrame(&wire.ServerFrame{Missed: true})
		}
		frames := c.out.Take(c.spare)
		c.spare, c.sending = nil, len(frames)
		c.mu.Unlock()
		err := c.net.SetWriteDeadline(time.Now().Add(writeTime))
		if err == nil {
			_, err = c.net.Write(frames)
		}
		if err != nil {
			c.close()
		}
		c.mu.Lock()
		if cap(frames) <= firstRoom {
			c.spare = frames
		}
		c.sending = 0
		c.fits()
		c.room.Broadcast()
	}
	if cap(c.spare) > ownUnsent { // most connections are idle most of the time
		c.spare = nil
	}
	c.writing = false
	if c.answered {
		c.ring() // the writing goroutine may end now
	}
}
