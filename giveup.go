package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// confirmBound is how long a caller that gives up waits for the engine to confirm that the
// claim is over, and how much longer than its bound a wait may take at a silent engine.
const confirmBound = time.Second

// boundNews is how long after a context's deadline, which the engine knows as the bound of the
// wait, the client waits for the engine to end the wait by itself.
const boundNews = confirmBound / 4

// caller is the call of a program that asks for a claim. The claim is given up when its context
// ends. Requests that are out by then may still be answered within confirmBound: only a claim
// that was answered can be ended for good.
type caller struct {
	context.Context
	after context.Context // ends confirmBound after the call's; nil if no request can hang
	stop  func()
	tries bool // it does not wait: an engine that takes no new claims is asked once more, and then no more
}

func (c *Client) callerOf(ctx context.Context) caller {
	if c.near || ctx.Done() == nil {
		return caller{Context: ctx, stop: func() {}}
	}
	after, cancel := context.WithCancel(outliving(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(confirmBound, cancel) })
	return caller{Context: ctx, after: after, stop: func() { stop(); cancel() }}
}

// confirming is the context of what ends the claim of a call that has given up.
func (by caller) confirming() (context.Context, context.CancelFunc) {
	if by.after != nil && by.Err() != nil {
		return by.after, func() {}
	}
	return context.WithTimeout(outliving(by.Context), confirmBound)
}

// outlivingKey marks contexts that outlive a program's call: programs know nothing of their ends,
// so no error tells of them.
type outlivingKey struct{}

func outliving(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), outlivingKey{}, true)
}

// givenUp is the error of a claim whose context has ended.
func (cl *claim) givenUp(ctx context.Context) *Error {
	why := Cancelled
	if ctx.Err() == context.DeadlineExceeded {
		why = TimedOut
	}
	return cl.refused(why, whyEnded(ctx))
}

// giveUp ends cl, whether or not it was granted in this very moment, so that it is never
// granted later. It returns why when the engine has confirmed that, and an ErrUnavailable when
// ctx ends first. It is called with c.mu held and returns without it.
func (c *Client) giveUp(ctx context.Context, cl *claim, why *Error) error {
	c.drop(cl, why, false)
	if err := c.endForGood(ctx, cl); err != nil {
		return unconfirmed(why, err)
	}
	return why
}

// endForGood ends cl, which is over here, at the engine: a want without an answer is sent again
// first. What is not confirmed when ctx ends, the client's goroutine goes on with. It is called
// with c.mu held and returns without it.
func (c *Client) endForGood(ctx context.Context, cl *claim) error {
	if !c.closed {
		c.todo[cl.id] = cl // whatever becomes of this caller
	}
	cl.parting = true
	err := c.release(ctx, cl)
	c.mu.Lock()
	defer c.unlock()
	cl.parting = false
	c.advance()
	if err == nil {
		delete(c.todo, cl.id)
	} else if !c.closed {
		c.kick()
	}
	return err
}

// unconfirmed is the error of a claim that was given up for this reason, and of which the engine
// has not confirmed that it is over: it may be held for a moment. It is never "taken".
func unconfirmed(why *Error, failed error) *Error {
	e := &Error{Op: why.Op, Path: why.Path, Err: ErrUnavailable, Cause: why.Cause,
		Detail: "the engine has not confirmed that the claim is over; the client goes on ending it"}
	var met *Error
	if !errors.As(failed, &met) || met.Cause == nil || isContextEnd(met.Cause) {
		return e
	}
	if e.Cause == nil {
		e.Cause = met.Cause
	} else {
		e.Cause = fmt.Errorf("%w; %w", met.Cause, why.Cause)
	}
	return e
}

// isContextEnd reports whether err says that a context has ended.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
