package interleave

import (
	"context"
	"time"
)

// Context stands for context.Context.
type Context = context.Context

// Cancelable is a context whose end the scheduler sees. As with package context, Err may return an
// error shortly before the functions of AfterFunc start.
type Cancelable struct {
	done  Uint32
	after []*afterFunc
}

var _ Context = (*Cancelable)(nil)

type afterFunc struct {
	state Uint32 // waits, started or stopped
	g     *goroutine
}

const (
	waits uint32 = iota
	started
	stopped
)

var never = make(chan struct{})

// Deadline reports that there is none.
func (c *Cancelable) Deadline() (at time.Time, ok bool) { return }

// Done returns a channel that is never closed; it only shows that the context can end.
func (c *Cancelable) Done() <-chan struct{} { return never }

// Err is context.Canceled after Cancel.
func (c *Cancelable) Err() error {
	if c.done.Load() != 0 {
		return context.Canceled
	}
	return nil
}

// Value returns nil.
func (c *Cancelable) Value(any) any { return nil }

// Cancel ends the context.
func (c *Cancelable) Cancel() {
	c.done.Store(1)
	for _, a := range c.after {
		if a.state.CompareAndSwap(waits, started) {
			a.g.ready = true
		}
	}
}

// Cause stands for context.Cause.
func Cause(ctx Context) error { return ctx.Err() }

// AfterFunc stands for context.AfterFunc, for a Cancelable during the setup of a program.
func AfterFunc(ctx Context, f func()) (stop func() bool) {
	c, ok := ctx.(*Cancelable)
	if !ok || world.running != nil {
		world.fail("AfterFunc needs a Cancelable, and works only during the setup of the program")
	}
	a := &afterFunc{g: world.later("context", f)}
	c.after = append(c.after, a)
	return func() bool { return a.state.CompareAndSwap(waits, stopped) }
}
