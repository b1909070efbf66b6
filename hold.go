package lockkeeper

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A Hold is one handle of a granted claim, until it is released or lost. It is safe for concurrent
// use. A method whose answer depends on time first compares the boot-time clock with the deadline of
// the hold, which lies before the moment at which the engine may grant the next claim (R12).
type Hold struct {
	claim     *claim          // of a plain lock: nil until it has one; guarded by the client's mutex
	slot      *Slot           // of a plain lock; nil for others
	base      context.Context // of the acquire
	up        *link           // the holds that enclose it
	own       *ownContext     // nil until Context is called; guarded by the client's mutex
	tied      bool            // Context ends with base too
	exclusive bool            // this handle needs more than shared targets
	state     handleState     // guarded by the client's mutex
	inSlot    uint32          // of a plain lock: the state of its slot; the methods of Slot access it
}

// An ownContext is the context of a handle, and what ends it.
type ownContext struct {
	context.Context
	end context.CancelCauseFunc
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
	if h.own != nil {
		why, end := h.over(), h.own.end
		c := h.claim.client
		c.ended = append(c.ended, func() { end(why) })
	}
}

// over returns why the handle has ended; nil if it has not.
func (h *Hold) over() error {
	switch h.state {
	case handleReleased:
		return &Error{Op: "hold", Path: h.claim.path, Err: ErrNotHeld, Reason: Released}
	case handleLost:
		return h.claim.endError()
	}
	return nil
}

// lock locks the client, and ends the claim if its deadline has passed.
func (h *Hold) lock() *claim {
	cl := h.full()
	cl.client.mu.Lock()
	cl.client.expireClaim(cl)
	return cl
}

func (h *Hold) unlock() { h.client().unlock() }

// Context returns a context that ends when the hold is released or lost; context.Cause returns why.
// It has the values of the context with which the hold was acquired, but not its end or deadline.
// Claims made under it are inside this hold: a claim that the hold covers is granted at once (see
// [Client.Lock]), and waiting for the hold itself is refused as a deadlock. Two goroutines that
// share the context may wait for each other's claims.
func (h *Hold) Context() context.Context {
	h.lock()
	defer h.unlock()
	if h.own != nil {
		return h.own.Context
	}
	base := h.base
	if !h.tied {
		base = context.WithoutCancel(base)
	}
	own, end := context.WithCancelCause(nestedContext{base, h.around()})
	h.own = &ownContext{own, end}
	if h.state != handleLive {
		end(h.over())
	}
	return own
}

// around returns the chain of holds that enclose the handle's context. A further handle of a hold
// is in the chain already, and is not the innermost link.
func (h *Hold) around() *link {
	if h != h.claim.first {
		return h.up
	}
	return &link{h.claim, h.up}
}

// Done returns a channel that is closed when the hold is released or lost.
func (h *Hold) Done() <-chan struct{} { return h.Context().Done() }

// Err returns nil while the lock is held. After that it returns an [ErrLost] with the reason, or an
// [ErrNotHeld] with the reason Released.
func (h *Hold) Err() error {
	if over, plain := h.plain(); plain {
		if over {
			return h.slot.released("hold")
		}
		return nil
	}
	h.lock()
	defer h.unlock()
	return h.over()
}

// Ref names the claim that is held.
func (h *Hold) Ref() Ref {
	if h.slot != nil {
		return Ref{Session: h.client().session.ID, ID: h.slot.ID}
	}
	return h.claim.ref()
}

// Fence returns the number of the latest grant. It is higher than that of every earlier grant, if
// the engine claims [FeatureFences]. A resource that remembers the highest fence can reject a
// holder that has lost the lock and does not know it yet (R13).
func (h *Hold) Fence() uint64 {
	if _, plain := h.plain(); plain {
		return h.slot.Fence
	}
	defer h.unlock()
	return h.lock().status.Fence
}

// Unconfirmed reports that the former holder may not know yet that it lost the lock (R12).
func (h *Hold) Unconfirmed() bool {
	if _, plain := h.plain(); plain {
		return false
	}
	defer h.unlock()
	return h.lock().status.Unconfirmed
}

// Grants returns the targets as they were granted.
func (h *Hold) Grants() []Grant {
	if _, plain := h.plain(); plain {
		return h.slot.grants()
	}
	defer h.unlock()
	return slices.Clone(h.lock().status.Grants)
}

// permits returns the first grant that counts units.
func (h *Hold) permits() Grant {
	defer h.unlock()
	for _, g := range h.lock().status.Grants {
		if g.Mode == ModePermits {
			return g
		}
	}
	return Grant{}
}

// InUse returns how many units of the first permits target were in use when it was granted, its own
// included; 0 if there is none.
func (h *Hold) InUse() int { return h.permits().InUse }

// Slot returns the lowest number from 1 to the limit that was free, for a first permits target of
// one unit; 0 if there is none.
func (h *Hold) Slot() int { return h.permits().Slot }

// RenewError returns why the latest renewal of the client's session failed; nil if it did not fail.
// If no later renewal succeeds in time, the hold is lost.
func (h *Hold) RenewError() error {
	defer h.unlock()
	return h.lock().client.failure
}

// Remaining returns for how long the lock is certainly held, from now on: [Forever] if nothing ends
// it, 0 if it has ended. A renewal extends it.
func (h *Hold) Remaining() time.Duration {
	defer h.unlock()
	cl := h.lock()
	c := cl.client
	if h.state != handleLive {
		return 0
	}
	end := cl.ends.First()
	if c.lease.TTL > 0 {
		end = end.Sooner(claimEnd{At: c.lease.Deadline(), Why: Unreachable})
	}
	if !end.Known() {
		return Forever
	}
	return max(end.At-c.clock(), 0)
}

// YieldAsked returns a channel that is closed when the holder is asked to yield; [Hold.Asked]
// returns the asker and the deadline. If the request is withdrawn, the next call returns a new
// channel.
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

// Asked returns the request to yield; nil if there is none. Its Left counts from now, less the
// client's margin.
func (h *Hold) Asked() *Asked {
	defer h.unlock()
	cl := h.lock()
	if h.state != handleLive || cl.status.Asked == nil {
		return nil
	}
	asked := *cl.status.Asked
	if end := cl.ends.Stated(); end.Known() {
		asked.Left = max(end.At-cl.client.clock(), 0)
	}
	return &asked
}

// Release ends this handle, and with the last handle of the claim the claim. This program no longer
// holds it from then on; ctx bounds the wait for the engine's confirmation. If the engine does not
// confirm in time, Release returns ErrUnavailable, and the client repeats the release in the
// background. After a loss it returns the [ErrLost]; a second release returns an [ErrNotHeld] and
// changes nothing.
func (h *Hold) Release(ctx context.Context) error {
	if s := h.slot; s != nil {
		switch s.Owner.Slots.Give(s) {
		case SlotHeld:
			return nil
		case SlotOver:
			return s.released("release")
		}
	}
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

// release ends cl, which is over in this client, at the engine. The caller holds c.mu; release
// unlocks it. It waits for an amendment in flight: arriving after the end, the amendment would be a
// new claim.
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
		ctx = context.WithoutCancel(ctx) // an engine in this process answers at once
	}
	err := c.endNow(ctx, cl, c.retryBound())
	if e, ok := err.(*Error); ok && e.Err == ErrNotHeld {
		return nil // it was held when Release began; it has ended with its session since
	}
	return err
}

// Close is Release with a bound of 5 s, or the TTL if that is shorter, for use with defer. After a
// release it returns nil.
func (h *Hold) Close() error {
	c := h.client()
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

// renameOp returns err with op as its operation.
func renameOp(op string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Op = op
	return &named
}
