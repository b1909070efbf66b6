package wire

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn sends frames over one connection. Its user reads the connection itself.
//
// # Outbox
//
// Any goroutine adds messages to the outbox, between Begin or Lock and End. One goroutine
// at a time writes: it takes the whole outbox and sends it by one call, so messages that come
// together share a frame and a write.
//
//	         message added          a goroutine takes the outbox
//	empty ─────────────────→ full ────────────────────────────────→ writing
//	  ↑                       ↑     messages were added meanwhile      │
//	  │                       └────────────────────────────────────────┤
//	  └────────────────────────────────────────────────────────────────┘
//	                             none were added
//
//	any state ── write error, write longer than WriteTime, or Fail ──→ failed (final)
//
// # Who writes
//
// End wakes the writing goroutine, which waits for Wake and then calls Flush. There are two
// shortcuts, each of which saves that switch of goroutines. With End(true) the caller itself writes
// once, if that can't block: not more than fewBytes were sent since the peer's last frame. And
// between Cork and Uncork, End wakes no goroutine: a reader that answers many requests corks first,
// and writes their answers by Uncork.
//
// # Flow control
//
// unsent is the number of bytes in the outbox and in the write under way. While Room(unsent) is
// false, Begin waits: so a server stops answering, and then reading, a client that does not read. A
// peer that reads nothing for WriteTime is disconnected. Messages after Lock in place of Begin do not
// wait: they must be few, or dropped while HasRoom is false.
//
// The lock also guards whatever its user must keep in step with the outbox.
type Conn struct {
	Out Outbox // guarded by the lock

	net      net.Conn
	options  ConnOptions
	wake     chan struct{}
	received atomic.Int64 // frames of the peer

	mu      sync.Mutex
	spare   []byte        // room for the next outbox
	sending int           // bytes of the write under way
	writing bool          // a goroutine writes
	corked  bool          // Uncork will write
	room    chan struct{} // closed when there may be room; nil if no goroutine waits
	failed  error

	unconfirmed int   // bytes sent since the peer's last frame
	confirmed   int64 // value of received when unconfirmed was last 0
}

// ConnOptions of a Conn. The functions may be nil, but for Room.
type ConnOptions struct {
	WriteTime   time.Duration         // bounds each write
	Room        func(unsent int) bool // may more be added? Called with the lock, at every change of unsent
	BeforeWrite func()                // called with the lock; may add to Out
	Failed      func(error)           // called once, without the lock
}

const (
	fewBytes = 32 << 10 // a network takes them without blocking if nothing else is under way
	busyRoom = 64 << 10 // buffers above this size are not kept
	idleRoom = 32 << 10 // likewise, while the outbox is empty: most connections are idle most of the time
)

// NewConn returns a Conn that sends over nc.
func NewConn(nc net.Conn, o ConnOptions) *Conn {
	return &Conn{net: nc, options: o, wake: make(chan struct{}, 1)}
}

// Lock locks the outbox.
func (c *Conn) Lock() { c.mu.Lock() }

// Unlock unlocks the outbox, if no message was added. After a message, call End.
func (c *Conn) Unlock() { c.mu.Unlock() }

// Begin waits for room until ctx ends, and returns with the lock held; after an error without it.
func (c *Conn) Begin(ctx context.Context) error {
	c.mu.Lock()
	for c.failed == nil && !c.HasRoom() {
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		c.Signal()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		c.mu.Lock()
	}
	if c.failed != nil {
		defer c.mu.Unlock()
		return c.failed
	}
	return nil
}

// HasRoom reports whether there is room now. The caller holds the lock.
func (c *Conn) HasRoom() bool { return c.failed == nil && c.options.Room(c.Out.Len()+c.sending) }

// End unlocks the outbox, and wakes the writing goroutine. With now, the caller itself writes if
// that can't block.
func (c *Conn) End(now bool) {
	if now && !c.writing && c.failed == nil && c.unblocked() {
		c.write(true)
	}
	if c.failed != nil {
		c.Out.Take(nil) // it can't be sent
	}
	wake := c.Out.Len() > 0 && !c.writing && !c.corked
	c.mu.Unlock()
	if wake {
		c.Signal()
	}
}

// unblocked reports whether a write of the outbox can't block: at most fewBytes can be under way.
// The number of open calls would not show that, because calls that were given up may be unread,
// too.
func (c *Conn) unblocked() bool {
	if now := c.received.Load(); now != c.confirmed {
		c.unconfirmed, c.confirmed = 0, now
	}
	return c.unconfirmed+c.Out.Len() <= fewBytes
}

// Wake is ready when the outbox waits for the writing goroutine, or after Signal.
func (c *Conn) Wake() <-chan struct{} { return c.wake }

// Signal wakes the writing goroutine.
func (c *Conn) Signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Cork keeps the outbox until Uncork.
func (c *Conn) Cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// Uncork ends Cork, and writes what was added meanwhile.
func (c *Conn) Uncork() {
	c.mu.Lock()
	c.corked = false
	c.mu.Unlock()
	c.Flush()
}

// Flush writes until the outbox is empty, unless another goroutine does so.
func (c *Conn) Flush() {
	c.mu.Lock()
	if !c.writing {
		c.write(false)
	}
	c.mu.Unlock()
}

// write sends the outbox once, or until it is empty. The caller holds the lock, and no other goroutine
// writes; write releases the lock while it writes.
func (c *Conn) write(once bool) {
	c.writing = true
	for c.failed == nil {
		if c.options.BeforeWrite != nil {
			c.options.BeforeWrite()
		}
		if c.Out.Len() == 0 {
			break
		}
		frames := c.Out.Take(c.spare)
		c.spare, c.sending = nil, len(frames)
		c.unconfirmed += len(frames)
		c.mu.Unlock()
		err := c.net.SetWriteDeadline(time.Now().Add(c.options.WriteTime))
		if err == nil {
			_, err = c.net.Write(frames)
		}
		if err != nil {
			c.Fail(err)
		}
		c.mu.Lock()
		if cap(frames) <= busyRoom {
			c.spare = frames
		}
		c.sending = 0
		c.announceRoom()
		if once {
			break
		}
	}
	if cap(c.spare) > idleRoom && c.Out.Len() == 0 {
		c.spare = nil
	}
	c.writing = false
}

// announceRoom reports the present unsent bytes to Room, and wakes the calls of Begin that wait.
// The caller holds the lock.
func (c *Conn) announceRoom() {
	c.options.Room(c.Out.Len() + c.sending)
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// Received counts a frame of the peer.
func (c *Conn) Received() { c.received.Add(1) }

// Frames returns the number of frames that the peer has sent.
func (c *Conn) Frames() int64 { return c.received.Load() }

// Err returns why the Conn has failed; nil if it has not. The caller holds the lock.
func (c *Conn) Err() error { return c.failed }

// Sent reports whether nothing waits to be sent, or nothing can be sent any more.
func (c *Conn) Sent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed != nil || c.Out.Len() == 0 && !c.writing
}

// Fail ends the connection now, and drops the outbox. Only the first call has an effect.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		return
	}
	c.failed = err
	c.Out.Take(nil)
	c.announceRoom()
	c.mu.Unlock()
	c.net.Close()
	if c.options.Failed != nil {
		c.options.Failed(err)
	}
}
