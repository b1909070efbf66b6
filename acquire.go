package lockkeeper

import (
	"context"
	"errors"
	"time"
)

// newClaim returns a claim without targets and conditions; prepare completes it.
func (c *Client) newClaim(op string) *claim {
	cl := &claim{client: c, op: op}
	cl.first, cl.room.claim = &cl.room, cl
	return cl
}

// acquire makes cl a hold. If it fails, it leaves no claim behind.
func (c *Client) acquire(ctx context.Context, cl *claim, more []Request) (*Hold, error) {
	cl.add(more)
	if err := c.prepare(ctx, cl); err != nil {
		return nil, err
	}
	if cl.first.up != nil {
		if h, err := c.reenter(ctx, cl); h != nil || err != nil {
			return h, err
		}
	}
	cl.bound(ctx)
	cl.begin(time.Now())
	by := c.callerOf(ctx)
	if err := c.start(by, cl); err != nil {
		return nil, err
	}
	return c.await(by, cl, true)
}

// checkedID is the id of a want that is checked before it has one.
const checkedID = 1

// prepare completes cl from its requests and checks it.
func (c *Client) prepare(ctx context.Context, cl *claim) error {
	cl.want.ID = checkedID
	if !cl.waits {
		cl.want.Wait = Forever
	}
	c.findEnclosing(ctx, cl)
	cl.fillLabel(c.session.Label)
	if len(cl.want.Targets) > 0 {
		cl.path = cl.want.Targets[0].Path
	}
	err := c.wrong
	if err == nil {
		err = cl.check()
	}
	if err == nil {
		err = c.guarantees.Refuse(&cl.want)
	}
	if err != nil {
		return wrap(cl.op, cl.path, err)
	}
	if ctx.Err() != nil {
		return cl.gaveUp(ctx)
	}
	return nil
}

// start sends cl for the first time and returns when the engine has answered. If by ends first,
// start gives the claim up.
func (c *Client) start(by caller, cl *claim) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return wrap(cl.op, cl.path, errClosed)
	}
	cl.id = c.nextID()
	cl.want.ID = cl.id
	c.claims[cl.id] = cl
	cl.inFlight++
	c.mu.Unlock()
	patience := c.retryBound()
	if cl.want.Wait < MaxDuration {
		patience = max(cl.want.Wait, c.closeBound())
		by.bounded, by.wait = true, cl.want.Wait
	}
	err := c.send(by, cl, cl.want, patience)
	if err == nil {
		return nil
	}
	c.mu.Lock()
	if cl.phase != over && cl.sent && !cl.answered && by.Err() != nil && !isRefusal(err) {
		after, done := by.confirming()
		defer done()
		return c.giveUp(after, cl, cl.gaveUp(by))
	}
	defer c.unlock()
	if cl.phase == over {
		return cl.endError() // ended meanwhile, by Close for instance
	}
	c.endClaim(cl, wrap(cl.op, cl.path, err), cl.sent && !cl.answered)
	c.raiseLowestOpen()
	return cl.endError()
}

// send sends want until the engine answers, and applies the answer. The caller has counted the call
// in cl.inFlight.
func (c *Client) send(by caller, cl *claim, want Want, patience time.Duration) error {
	by.try = want.Wait == 0
	tries, sent := 0, fromHint
	stamped := c.session.TTL > 0 || want.MaxHold > 0 || want.Revision > 0
	err := c.callFor(by, patience, func(ctx context.Context, k Key) (err error) {
		tries++
		if (c.session.TTL > 0 || tries > 1) && !c.maySend(cl, k) {
			return errUnwanted
		}
		if tries == 1 {
			c.deductAttach(cl, &want)
		}
		held := c.key.Load() // read before the call: the answer counts under this key only
		if stamped {
			sent = c.clock() // read before the call: durations in the answer count from here (R12)
		}
		status, err := c.engine.Claim(ctx, k, want)
		if err != nil {
			return err
		}
		return c.applyAnswer(cl, held, &status, sent)
	})
	c.mu.Lock()
	defer c.unlock()
	cl.inFlight--
	cl.sent = cl.sent || tries > 0
	if err != nil && tries == 1 && isRefusal(err) && !cl.answered {
		cl.sent = false // the engine refused it, so it stores nothing of it
	}
	if cl.inFlight == 0 {
		if cl.phase == over {
			cl.wake() // a release may wait for this
		}
		if len(c.unfinished) > 0 && c.unfinished[cl.id] != nil {
			c.wakeWorker()
		}
	}
	return err
}

// deductAttach shortens the wait of the first request to the time until cl.due, because the client
// may have attached the session first. Every repetition asks for the same wait.
func (c *Client) deductAttach(cl *claim, want *Want) {
	if cl.due.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cl.sent && want.Revision == 0 {
		want.Wait = max(time.Until(cl.due), time.Nanosecond)
		cl.want.Wait = want.Wait
	}
}

// errStale discards an answer: the lease under which the request was sent has passed, or the
// session was attached again meanwhile.
var errStale error = &Error{Err: ErrSession, Detail: "answered after the lease had passed"}

// applyAnswer applies an answer to a request that was sent under the key k.
func (c *Client) applyAnswer(cl *claim, k *Key, s *Status, sent time.Duration) error {
	c.mu.Lock()
	defer c.unlock()
	if c.lease.TTL > 0 {
		c.expireSession(c.clock())
	}
	if c.session.TTL > 0 && !c.isLatestKey(k) {
		return errStale
	}
	cl.answered = true
	if c.applyStatus(cl, s, sent) {
		c.ackRenewals = 2
		c.renewToAck()
	}
	c.raiseLowestOpen()
	if cl.phase == over && s.State != Ended && !c.closed {
		c.unfinished[cl.id] = cl // the caller that gave it up may believe that it has ended
		c.wakeWorker()
	}
	return nil
}

// errUnwanted refuses to send a claim that no caller wants any more and that the latest Attach did
// not name.
var errUnwanted error = &Error{Err: ErrNotHeld, Detail: "the session was attached again without it"}

// maySend reports whether the client may send cl under the key k. It sends a claim that is over
// only to end it after the answer. If the claim was neither sent nor named under k, or if the
// engine has reported its end, the request could make the claim a second time, and no caller would
// release it.
func (c *Client) maySend(cl *claim, k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.phase == over && (cl.epoch != k.Epoch || cl.known && cl.status.State == Ended) {
		return false
	}
	cl.epoch = k.Epoch
	return true
}

// await waits until cl is granted and returns its hold, or the reason why it will never be granted.
// If by ends and final is set, await gives the claim up; without final the claim goes on waiting.
func (c *Client) await(by caller, cl *claim, final bool) (*Hold, error) {
	var late <-chan time.Time
	look := cl.due.Add(cl.slack) // after the engine's own bound, in case its notification is lost
	ending := by.Done()          // nil after the deadline, while the engine has time to name the blockers
	for {
		c.mu.Lock()
		c.expireClaim(cl)
		ended := by.Err() != nil
		switch {
		case cl.phase == over:
			c.unlock()
			return nil, cl.endError()
		case ended && final && ending != nil && cl.phase == inLine && cl.byContext && by.Err() == context.DeadlineExceeded:
			ending = nil
			if by.grace != nil {
				by.grace.Begin()
			}
			timer := time.NewTimer(min(cl.slack, timeoutNews))
			defer timer.Stop()
			late = timer.C
		case ended && final && (ending != nil || cl.phase != inLine):
			after, done := by.confirming()
			defer done()
			return nil, c.giveUp(after, cl, cl.gaveUp(by))
		case cl.phase == granted && !cl.needsAnswer:
			cl.delivered = true
			if cl.first.base == nil {
				cl.first.base = by.Context
				cl.first.exclusive = cl.needsExclusive()
			}
			c.unlock()
			return cl.first, nil
		case ended && !final:
			err := cl.gaveUp(by)
			c.unlock()
			return nil, err
		case cl.phase == granted:
			if err := c.confirmGrant(by, cl, final); err != nil {
				return nil, err
			}
			continue
		}
		changed := cl.watch()
		c.unlock()
		if late == nil && !cl.due.IsZero() && !cl.byContext && c.session.TTL > 0 {
			timer := time.NewTimer(time.Until(look))
			defer timer.Stop()
			late = timer.C
		}
		if late == nil && ending == nil {
			<-changed // costs half as much as a select
			continue
		}
		select {
		case <-changed:
		case <-ending:
		case <-late:
			late, look = nil, time.Now().Add(confirmBound)
			if err := c.resolveOutcome(by, cl, final); err != nil {
				return nil, err
			}
		}
	}
}

// resolveOutcome asks the engine about cl, whose wait is over without a status that says so. If
// final is set, it gives up a claim that still waits or whose state is unknown. It returns nil if
// the caller can go on.
func (c *Client) resolveOutcome(by caller, cl *claim, final bool) error {
	after, done := by.confirming()
	defer done()
	err := c.queryOutcome(after, cl)
	c.mu.Lock()
	if cl.phase != inLine {
		c.unlock()
		return nil
	}
	why := cl.refused(TimedOut, nil)
	if by.Err() != nil {
		why = cl.gaveUp(by)
	}
	if final {
		return c.giveUp(after, cl, why)
	}
	c.unlock()
	if err != nil {
		return wrap(cl.op, cl.path, unavailable(err, by)) // it may be free by now, or even be held by cl
	}
	return nil
}

// queryOutcome asks the engine for the status of cl, whose wait is over: a refusal must name the
// blockers, and the claim may have been granted just in time. An error means that the
// outcome is unknown.
func (c *Client) queryOutcome(ctx context.Context, cl *claim) error {
	for s, err := range c.engine.List(ctx, Query{Ref: cl.ref()}) {
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		if s.State == Waiting && cl.phase == inLine {
			cl.status.Blockers, cl.status.Position, cl.status.ETA = s.Blockers, s.Position, s.ETA
		} else {
			c.applyStatus(cl, &s, fromHint)
		}
		c.unlock()
		return nil
	}
	return nil
}

// confirmGrant repeats the request of cl, whose grant came by a hint: its longest hold can be
// counted only from an answer. The caller holds c.mu; confirmGrant unlocks it.
func (c *Client) confirmGrant(by caller, cl *claim, final bool) error {
	cl.inFlight++
	want := cl.want
	c.unlock()
	err := c.send(by, cl, want, c.retryBound())
	if err == nil {
		return nil
	}
	c.mu.Lock()
	if cl.phase != over && final {
		after, done := by.confirming()
		defer done()
		return c.giveUp(after, cl, wrap(cl.op, cl.path, err))
	}
	defer c.unlock()
	if cl.phase == over {
		return cl.endError()
	}
	return wrap(cl.op, cl.path, err)
}
