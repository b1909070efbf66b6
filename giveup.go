package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// confirmBound bounds how long a caller that gives up waits for the engine to confirm the end of
// its claim. If the engine does not answer, a wait exceeds its own bound by at most confirmBound.
const confirmBound = time.Second

// timeoutNews bounds the wait, after a context's deadline, for the engine's notification that the
// claim timed out. The engine knows the deadline as the bound of the wait.
const timeoutNews = confirmBound / 4

// caller is a program's call for a claim. The client gives the claim up when the context ends.
// The engine may still answer requests in flight within confirmBound: the end of a claim is final
// only if the engine has answered the claim.
type caller struct {
	context.Context
	grace *roundtrip.Grace // of requests in flight; nil if none can hang
	try   bool             // the claim does not wait: the client repeats it only once at an engine that drains

	bounded bool          // the claim has a bound, which is wait
	wait    time.Duration // how long the claim may wait
}

func (c *Client) callerOf(ctx context.Context) caller {
	if c.prompt || ctx.Done() == nil {
		return caller{Context: ctx}
	}
	return caller{Context: ctx, grace: roundtrip.NewGrace(confirmBound)}
}

// confirming returns the context for the requests that end the claim of a call that gave up.
func (by caller) confirming() (context.Context, context.CancelFunc) {
	if by.grace != nil && by.Err() != nil {
		return context.WithDeadline(outliving(by.Context), by.grace.Begin())
	}
	return context.WithTimeout(outliving(by.Context), confirmBound)
}

// timeLeft returns how long a call that began that long ago may still take. In an outage, that of a
// claim with a bound takes no longer than the claim may wait, and the error says what the outage is.
func (c *Client) timeLeft(by caller, patience, passed time.Duration) (left time.Duration, outage error) {
	left = patience - passed
	if !by.bounded || c.outages == nil {
		return left, nil
	}
	why := c.outages.Outage()
	if why == nil {
		return left, nil
	}
	if left = min(left, by.wait-passed); left <= 0 {
		outage = why
	}
	return left, outage
}

// outlivingKey marks contexts that outlive a program's call. Programs do not know these contexts,
// so no error mentions their ends.
type outlivingKey struct{}

func outliving(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), outlivingKey{}, true)
}

// gaveUp returns the error of a claim whose context has ended.
func (cl *claim) gaveUp(ctx context.Context) *Error {
	why := Cancelled
	if ctx.Err() == context.DeadlineExceeded {
		why = TimedOut
	}
	return cl.refused(why, whyEnded(ctx))
}

// giveUp ends cl, even if the engine grants it at this moment; the engine does not grant it later.
// It returns why once the engine has confirmed the end, and an ErrUnavailable if ctx ends first.
// The caller holds c.mu; giveUp unlocks it.
func (c *Client) giveUp(ctx context.Context, cl *claim, why *Error) error {
	c.endClaim(cl, why, false)
	if err := c.endForGood(ctx, cl); err != nil {
		return unconfirmed(why, err)
	}
	return why
}

// endForGood ends cl, which is over in this client, at the engine. It first repeats a want without
// an answer. If ctx ends before the engine has confirmed the end, the client's goroutine goes on
// with it. The caller holds c.mu; endForGood unlocks it.
func (c *Client) endForGood(ctx context.Context, cl *claim) error {
	if !c.closed {
		c.unfinished[cl.id] = cl // the client ends it even if this caller does not
	}
	cl.endInFlight = true
	err := c.release(ctx, cl)
	c.mu.Lock()
	defer c.unlock()
	cl.endInFlight = false
	c.raiseLowestOpen()
	if err == nil {
		delete(c.unfinished, cl.id)
	} else if !c.closed {
		c.wakeWorker()
	}
	return err
}

// unconfirmed returns the error of a claim that its caller gave up, and whose end the engine has
// not confirmed: the claim may still be held. The error is never ErrNotAcquired.
func unconfirmed(why *Error, failed error) *Error {
	e := &Error{Op: why.Op, Path: why.Path, Err: ErrUnavailable, Cause: why.Cause,
		Detail: "the engine has not confirmed the end of the claim; the client keeps trying to end it"}
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
