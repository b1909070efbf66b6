// Package roundtrip has the context of one call of an engine. It ends with the context of a program's
// call, with the life of a client, or at its own deadline, whichever comes first.
//
// A context of the standard library would need a timer and two registrations for that, at each call.
// This one needs them only if Done is called:
//
//	            Done                    an end, or End
//	plain ───────────────→ watched ──────────────────────→ over
//	  │                                                      ↑
//	  └──────────────────────────── End ─────────────────────┘
//
// An engine that watches deadlines by itself, such as engine/remote, calls Ends in place of Done.
package roundtrip

import (
	"context"
	"sync"
	"time"
)

// A Context is safe for concurrent use. It has the values of the caller's context.
type Context struct {
	caller, life context.Context
	due          time.Time

	mu      sync.Mutex
	watched context.Context // nil until Done is called
	stop    func()          // of watched
	over    bool            // End was called
}

// New returns a context that ends with caller, with life, or at the time due. Call End when the call is
// over.
func New(caller, life context.Context, due time.Time) *Context {
	if at, bounded := caller.Deadline(); bounded && at.Before(due) {
		due = at
	}
	return &Context{caller: caller, life: life, due: due}
}

// Ends returns the contexts of the caller and of the life. An engine that waits for the ends of both,
// and for the deadline, needs no Done.
func (c *Context) Ends() (caller, life context.Context) { return c.caller, c.life }

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.due, true }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched == nil {
		watched, cancel := context.WithDeadline(c.caller, c.due)
		stop := context.AfterFunc(c.life, cancel)
		c.watched, c.stop = watched, func() { stop(); cancel() }
		if c.over {
			c.stop()
		}
	}
	return c.watched.Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched != nil {
		return c.watched.Err()
	}
	if err := c.caller.Err(); err != nil {
		return err
	}
	switch {
	case c.over || c.life.Err() != nil:
		return context.Canceled
	case !time.Now().Before(c.due):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	watched := c.watched
	c.mu.Unlock()
	if watched != nil { // package context looks for the context of Done by a key of its own
		return watched.Value(key)
	}
	return c.caller.Value(key)
}

// End ends the context, and releases what watches it.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil {
		c.stop()
	}
}
