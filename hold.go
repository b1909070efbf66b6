package lockkeeper

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Hold is what a client has been granted, as its holder sees it, until it is
// released or lost. It is safe for concurrent use. Every look at it compares the
// boot-time clock with its deadline, which lies before the moment when the
// engine may grant anybody else (R12).
type Hold struct {
	claim     *claim
	base      context.Context // of the acquire
	up        *link           // the holds that it was made inside of
	tied      bool            // Context ends with base too
	exclusive bool            // this handle needs more than shared targets

	// Guarded by the client's mutex.
	state handleState
	own   context.Context // made when it is asked for
	end   context.CancelCauseFunc
}

type handleState uint8

const (
	handleLive handleState = iota
	handleReleased
	handleLost
)

// finish ends the handle, once. Its context ends as soon as the client is unlocked.
func (h *Hold) finish(state handleState) {
	if h.state != handleLive {
		return
	}
	h.state = state
	if h.end != nil {
		why := h.over()
		c := h.claim.client
		c.ended = append(c.ended, func() { h.end(why) })
	}
}

// over is why the handle has ended; nil if it has not.
func (h *Hold) over() error {
	switch h.state {
	case handleReleased:
		return &Error{Op: "hold", Path: h.claim.path, Err: ErrNotHeld, Reason: Released}
	case handleLost:
		return h.claim.endError()
	}
	return nil
}

// use locks the client and looks at the deadlines of the hold.
func (h *Hold) lock() *claim {
	h.claim.client.mu.Lock()
	h.claim.client.expireClaim(h.claim)
	return h.claim
}

func (h *Hold) unlock() { h.claim.client.unlock() }

// Context ends when the hold is released or lost; context.Cause tells why. It has
// the values of the context with which the hold was acquired, but not its end or
// deadline. Claims made under it are inside this hold: what it covers is granted
// at once (see [Client.Lock]), and waiting for it is refused as a deadlock. Two
// goroutines that share it may wait for each other's claims.
func (h *Hold) Context() context.Context {
	h.lock()
	defer h.unlock()
	if h.own != nil {
		return h.own
	}
	base := h.base
	if !h.tied {
		base = context.WithoutCancel(base)
	}
	h.own, h.end = context.WithCancelCause(nestedContext{base, h.around()})
	if h.state != handleLive {
		h.end(h.over())
	}
	return h.own
}

// around is the chain of holds that the handle's context is inside of. A hold
// that was entered again is in it already, and not the innermost.
func (h *Hold) around() *link {
	if h != &h.claim.first {
		return h.up
	}
	return &link{h.claim, h.up}
}

// Done is closed when the hold is released or lost.
func (h *Hold) Done() <-chan struct{} { return h.Context().Done() }

// Err is nil while it is held. After that it is an [ErrLost] with the reason, or
// an [ErrNotHeld] with the reason Released.
func (h *Hold) Err() error {
	h.lock()
	defer h.unlock()
	return h.over()
}

// Ref names the claim that is held.
func (h *Hold) Ref() Ref { return Ref{Session: h.claim.client.session.ID, ID: h.claim.id} }

// Fence is the number of the latest grant: larger than that of every grant
// before. A resource that keeps the largest it has seen can refuse who lost the
// lock without knowing (R13).
func (h *Hold) Fence() uint64 {
	defer h.unlock()
	return h.lock().status.Fence
}

// Unconfirmed reports that the former holder might not know yet that it lost (R12).
func (h *Hold) Unconfirmed() bool {
	defer h.unlock()
	return h.lock().status.Unconfirmed
}

// Grants are the targets as they were granted.
func (h *Hold) Grants() []Grant {
	defer h.unlock()
	return slices.Clone(h.lock().status.Grants)
}

// permits is the first of the grants that counts units.
func (h *Hold) permits() Grant {
	defer h.unlock()
	for _, g := range h.lock().status.Grants {
		if g.Mode == ModePermits {
			return g
		}
	}
	return Grant{}
}

// InUse is how many units of the first permits target were in use when it was
// granted, its own included; 0 without one.
func (h *Hold) InUse() int { return h.permits().InUse }

// Slot is the lowest number from 1 to the limit that was free, of the first
// permits target with one unit; 0 without one.
func (h *Hold) Slot() int { return h.permits().Slot }

// RenewError is why the latest renewal of the client's session failed; nil if it did
// not. The hold is lost when nothing else is heard until then.
func (h *Hold) RenewError() error {
	defer h.unlock()
	return h.lock().client.failure
}

// Remaining is how long it is held for certain from now on; [Forever] where
// nothing ends it, 0 when it has ended. A renewal makes it longer.
func (h *Hold) Remaining() time.Duration {
	defer h.unlock()
	cl := h.lock()
	c := cl.client
	if h.state != handleLive {
		return 0
	}
	end := cl.end()
	if c.ttl > 0 {
		end = end.sooner(claimEnd{at: c.deadline(), why: Unreachable})
	}
	if end.why == NoReason {
		return Forever
	}
	return max(end.at-c.clock(), 0)
}

// YieldAsked is closed when the holder is asked to yield; [Hold.Asked] tells by
// whom and until when. If the ask is withdrawn the next call gives a new channel.
func (h *Hold) YieldAsked() <-chan struct{} {
	defer h.unlock()
	cl := h.lock()
	if cl.yield == nil {
		cl.yield = make(chan struct{})
		if cl.yielding {
			close(cl.yield)
		}
	}
	return cl.yield
}

// Asked is what the holder is asked, nil if nothing. Its Left is counted from
// now, with the client's margin taken off.
func (h *Hold) Asked() *Asked {
	defer h.unlock()
	cl := h.lock()
	if h.state != handleLive || cl.status.Asked == nil {
		return nil
	}
	asked := *cl.status.Asked
	if end := cl.answeredEnd.sooner(cl.hintedEnd); end.why != NoReason {
		asked.Left = max(end.at-cl.client.clock(), 0)
	}
	return &asked
}

// Release ends this handle, and with the last handle of the claim the claim. It
// is released for this program at once; ctx bounds the wait for the engine's
// word. Without it in time the answer is ErrUnavailable, and the release is
// repeated in the background. After a loss it returns the [ErrLost]; a second
// release returns an [ErrNotHeld] and changes nothing.
func (h *Hold) Release(ctx context.Context) error {
	cl := h.lock()
	c := cl.client
	if err := h.over(); err != nil {
		h.unlock()
		return renameOp("release", err)
	}
	h.finish(handleReleased)
	if len(cl.more) > 0 {
		cl.more = slices.DeleteFunc(cl.more, func(other *Hold) bool { return other == h })
	}
	if cl.live--; cl.live > 0 {
		h.unlock()
		return nil
	}
	if len(c.unfinished) > 0 {
		delete(c.unfinished, cl.id)
	}
	c.forget(cl)
	if err := c.release(ctx, cl); err != nil {
		return wrap("release", cl.path, err)
	}
	return nil
}

// release ends cl, which is over here, at the engine. It is called with c.mu
// held and returns without it. An amendment that is out is waited for: arriving
// after the end it would be a new claim.
func (c *Client) release(ctx context.Context, cl *claim) error {
	var failed error
	for cl.inFlight > 0 && ctx.Err() == nil {
		changed := cl.watch()
		c.unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	if (cl.resend || cl.sent && !cl.answered) && cl.inFlight == 0 && ctx.Err() == nil {
		cl.inFlight++
		want := cl.want
		c.unlock()
		failed = c.send(caller{Context: ctx}, cl, want, c.retryBound())
		c.mu.Lock()
		cl.resend = failed != nil && !isRefusal(failed)
		cl.answered = cl.answered || !cl.resend // a refusal is an answer too
	}
	later := cl.inFlight > 0 || cl.resend || ctx.Err() != nil && !c.prompt
	if later && !c.closed {
		c.unfinished[cl.id] = cl
		c.wakeWorker()
	}
	c.unlock()
	if later && cl.resend && failed != nil {
		return failed
	}
	if later {
		return unavailable(ctx.Err(), ctx)
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // nothing to wait for within the process
	}
	err := c.endNow(ctx, cl, c.retryBound())
	if e, ok := err.(*Error); ok && e.Err == ErrNotHeld {
		return nil // it was held when this began; its session has ended meanwhile, and it with it
	}
	return err
}

// Close is Release with a bound of its own, 5 s or the TTL if that is shorter,
// for use with defer. After an ordinary release it is nil.
func (h *Hold) Close() error {
	c := h.claim.client
	ctx := context.Background()
	if !c.prompt {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.closeBound())
		defer cancel()
	}
	err := h.Release(ctx)
	if e, ok := err.(*Error); ok && e.Err == ErrNotHeld && e.Reason == Released {
		return nil
	}
	return err
}

// wrapAs is err under the name of another operation.
func renameOp(op string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Op = op
	return &named
}
