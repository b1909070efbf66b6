package remote

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A reader is the goroutine that reads the frames of a connection.
type reader uint8

const (
	receiver reader = iota // the goroutine of the connection
	caller                 // the only open call; it hands over what is not an answer
	nobody                 // the next call
)

const (
	briskGap   = time.Millisecond // calls that follow each other within it are brisk
	briskCalls = 64               // so many of them in a row let the receiver step aside
	mostKnown  = 1024             // waiting claims that a connection remembers
)

// A lead is the state of reading. The lock of the connection guards the fields, but the last ones.
type lead struct {
	reader  reader
	kicked  bool                        // the read deadline has passed, so that a caller that reads leaves
	streak  int                         // brisk calls in a row, each sent while no other call was open
	sent    time.Time                   // when the latest call was sent
	enough  int                         // the streak from which on the receiver steps aside
	waiting map[lockkeeper.Ref]struct{} // claims that are known to wait for a hint

	turn    chan struct{} // filled when the receiver becomes the reader again; room for one
	message []byte        // a frame that it has to process first; nil if there is none
	err     error         // the end of the stream

	// The reader's own.
	frames   frames
	arrivals []arrival // the answers of the frame at hand
}

// follow makes the receiver the reader, if nobody is. The lock is held.
func (c *conn) follow() {
	if c.lead.reader == nobody {
		c.handOver(nil, nil)
	}
}

// handOver makes the receiver the reader, which first processes a frame or the end of the stream,
// if there is one. The lock is held, and the receiver is not the reader.
func (c *conn) handOver(message []byte, err error) {
	c.unkick()
	c.lead.reader, c.lead.message, c.lead.err = receiver, message, err
	c.lead.turn <- struct{}{}
}

// kick makes a caller that reads leave. A caller that is kicked by mistake waits for its answer as
// others do. The lock is held.
func (c *conn) kick() {
	if c.lead.reader == caller && !c.lead.kicked {
		c.lead.kicked = true
		_ = c.net.SetReadDeadline(time.Unix(1, 0)) // it fails only if reading fails by itself
	}
}

func (c *conn) unkick() {
	if c.lead.kicked {
		c.lead.kicked = false
		_ = c.net.SetReadDeadline(time.Time{})
	}
}

// begun counts a call that was added, and reports whether its caller is to read. The lock is held.
func (c *conn) begun(m *request, sent time.Time) bool {
	if c.calls.open == 1 && sent.Sub(c.lead.sent) < briskGap {
		c.lead.streak++
	} else {
		c.lead.streak = 0
	}
	c.lead.sent = sent
	if len(c.lead.waiting) > 0 {
		switch {
		case m.ending != nil && m.ending.Kind == lockkeeper.Release:
			delete(c.lead.waiting, lockkeeper.Ref{Session: m.Key.Session, ID: m.ending.ID})
		case m.Method == wire.MethodEnd, m.Method == wire.MethodAttach:
			clear(c.lead.waiting) // it may end any of them
		}
	}
	if c.lead.reader != nobody {
		return false
	}
	c.lead.reader = caller
	return true
}

// brisk reports whether the next caller is to read, because one goroutine makes one call after the
// other, and nothing else is expected of the server. The lock is held.
func (c *conn) brisk() bool {
	return c.lead.streak >= c.lead.enough && c.calls.open == 0 && c.calls.lists == 0 && len(c.lead.waiting) == 0 &&
		!c.lead.frames.pending() && c.Err() == nil
}

// note remembers whether the claim of a status waits. The lock is held.
func (c *conn) note(s *lockkeeper.Status) {
	if s.State != lockkeeper.Waiting {
		delete(c.lead.waiting, s.Ref)
		return
	}
	if c.lead.waiting == nil {
		c.lead.waiting = make(map[lockkeeper.Ref]struct{})
	}
	if len(c.lead.waiting) < mostKnown {
		c.lead.waiting[s.Ref] = struct{}{}
	}
}

// read reads frames in the caller's goroutine until its call is answered, or until it has to hand
// over. It reports whether the call is answered.
func (c *conn) read(cl *call, e *ends) bool {
	defer c.watchEnds(e)()
	for {
		message, err := c.next()
		if err == nil && answersOnly(message) {
			message, err = nil, c.deliverAll(message)
		}
		if err != nil || message != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
			c.passOn(message, err)
			return false
		}
		select {
		case <-cl.done:
			c.finish()
			return true
		default:
		}
	}
}

// passOn is handOver by a caller that reads.
func (c *conn) passOn(message []byte, err error) {
	c.Lock()
	c.handOver(message, err)
	c.Unlock()
}

// finish ends the reading of a caller that is answered.
func (c *conn) finish() {
	c.Lock()
	defer c.Unlock()
	if c.brisk() {
		c.unkick()
		c.lead.reader = nobody
	} else {
		c.handOver(nil, nil)
	}
}

// watchEnds makes the ends of contexts that the connection does not watch kick the caller that reads.
// The caller calls stop when it has left.
func (c *conn) watchEnds(e *ends) (stop func()) {
	if e.contexts == ([2]context.Context{}) {
		return func() {}
	}
	kick := func() {
		c.Lock()
		c.kick()
		c.Unlock()
	}
	var stops [2]func() bool
	for k, ctx := range e.contexts {
		if ctx != nil {
			stops[k] = context.AfterFunc(ctx, kick)
		}
	}
	return func() {
		for _, stop := range stops {
			if stop != nil {
				stop()
			}
		}
	}
}

// next reads a frame. Only the reader calls it.
func (c *conn) next() ([]byte, error) {
	message, err := c.lead.frames.next()
	if err == nil {
		c.Received()
	}
	return message, err
}

// await returns the next frame that the receiver has to process. Before it reads, it steps aside
// while calls are brisk.
func (c *conn) await() ([]byte, error) {
	c.Lock()
	aside := c.brisk()
	if aside {
		c.lead.reader = nobody
	}
	c.Unlock()
	if aside {
		if message, err := c.awaitTurn(); message != nil || err != nil {
			return message, err
		}
	}
	return c.next()
}

// awaitTurn returns when the receiver is the reader again: a caller has handed over, or no call was
// sent for a while.
func (c *conn) awaitTurn() (message []byte, err error) {
	pause := time.NewTicker(briskGap)
	defer pause.Stop()
	seen := uint64(0)
	for {
		select {
		case <-c.lead.turn:
			c.Lock()
			message, err, c.lead.message = c.lead.message, c.lead.err, nil
			c.Unlock()
			return message, err
		case <-pause.C:
		}
		c.Lock()
		if now := c.calls.next; now != seen {
			seen = now
		} else {
			c.lead.streak = 0 // a caller that still reads will hand over
			pause.Stop()
			if c.lead.reader == nobody {
				c.lead.reader = receiver
				c.Unlock()
				return nil, nil
			}
		}
		c.Unlock()
	}
}

// answersOnly reports whether a frame is valid and has nothing but answers.
func answersOnly(message []byte) bool {
	e := wire.NewElements(message)
	for e.Next() {
		if e.Field() != wire.FieldReplies {
			return false
		}
	}
	return e.Err() == nil
}
