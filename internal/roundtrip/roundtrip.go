// Package roundtrip has the context of one call of an engine. It ends with the context of a
// program's call, with the life of a client, or at its own deadline, whichever comes first.
//
// A context of the standard library would need a timer and two registrations for that, at each
// call. This one needs them only if Done is called:
//
//	            Done                    an end, or End
//	plain ───────────────→ watched ──────────────────────→ over
//	  │                                                      ↑
//	  └──────────────────────────── End ─────────────────────┘
//
// An engine that watches deadlines by itself, such as engine/remote, calls Ends in place of Done.
//
// With a Grace, a call that has begun goes on for a while after the end of its caller's context.
package roundtrip

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Context is safe for concurrent use. It has the values of the caller's context.
type Context struct {
	caller, life context.Context
	due          time.Time
	grace        *Grace // may be nil
	hasty        bool   // see EndInOutage

	mu      sync.Mutex
	watched context.Context // nil until Done is called
	stop    func()          // of watched
	over    bool            // End was called
}

// A Grace is the time for which the calls of one caller go on after the end of its context. It
// begins when the end is noticed first, by any of them. It is safe for concurrent use.
type Grace struct {
	bound time.Duration
	mu    sync.Mutex
	until time.Time // zero until it begins
}

// NewGrace returns a grace of that length.
func NewGrace(bound time.Duration) *Grace { return &Grace{bound: bound} }

// Begin begins the grace, unless it has begun, and returns its end.
func (g *Grace) Begin() (until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until.IsZero() {
		g.until = time.Now().Add(g.bound)
	}
	return g.until
}

// New returns a context that ends with caller, with life, or at the time due. With a grace, which
// may be nil, it ends with the grace of the caller in place of the caller. Call End when the call
// is over.
func New(caller, life context.Context, due time.Time, grace *Grace) *Context {
	if at, bounded := caller.Deadline(); grace == nil && bounded && at.Before(due) {
		due = at
	}
	return &Context{caller: caller, life: life, due: due, grace: grace}
}

// Ends returns the contexts of the caller and of the life. An engine that waits for the ends of
// both, and for the deadline, needs no Done. After the end of the caller it calls Outlive.
func (c *Context) Ends() (caller, life context.Context) { return c.caller, c.life }

// HasGrace reports whether the call may go on after the end of its caller.
func (c *Context) HasGrace() bool { return c.grace != nil }

// Outlive reports until when the call goes on after the end of its caller; false if it does not.
func (c *Context) Outlive() (until time.Time, ok bool) {
	if c.grace == nil {
		return time.Time{}, false
	}
	until = c.grace.Begin()
	if c.due.Before(until) {
		until = c.due
	}
	return until, true
}

// ErrNoEffect marks the error of a call that an engine never began: it has changed nothing, and never will.
var ErrNoEffect = errors.New("the call was not begun")

// NoEffect marks an error with ErrNoEffect. Its text stays.
func NoEffect(err error) error { return &noEffect{err} }

type noEffect struct{ error }

func (e *noEffect) Unwrap() []error { return []error{e.error, ErrNoEffect} }

// outageKey marks contexts whose calls end in an outage.
type outageKey struct{}

// EndInOutage returns a context for calls whose caller has no time for an outage: an engine that knows
// that its outage will last ends them.
func EndInOutage(ctx context.Context) context.Context {
	return context.WithValue(ctx, outageKey{}, true)
}

// EndInOutage makes c such a context. It is called before c is used.
func (c *Context) EndInOutage() { c.hasty = true }

// EndsInOutage reports whether ctx is such a context.
func EndsInOutage(ctx context.Context) bool { return ctx.Value(outageKey{}) == true }

// Deadline implements context.Context. It does not know of a grace.
func (c *Context) Deadline() (time.Time, bool) { return c.due, true }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched == nil {
		caller := c.caller
		if c.grace != nil {
			caller = context.WithoutCancel(caller)
		}
		watched, cancel := context.WithDeadline(caller, c.due)
		stop, stopGrace := context.AfterFunc(c.life, cancel), func() bool { return true }
		if c.grace != nil {
			stopGrace = context.AfterFunc(c.caller, func() { time.AfterFunc(time.Until(c.grace.Begin()), cancel) })
		}
		c.watched, c.stop = watched, func() { stop(); stopGrace(); cancel() }
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
		if c.grace == nil {
			return err
		}
		if until := c.grace.Begin(); !time.Now().Before(until) && !c.due.Before(until) {
			return context.Canceled
		}
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
	if c.hasty && key == (outageKey{}) {
		return true
	}
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
