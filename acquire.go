package lockkeeper

import (
	"context"
	"errors"
	"time"
)

// newClaim makes a claim in the making.
func (c *Client) newClaim(op string) *claim {
	cl := &claim{client: c, op: op}
	cl.first.claim = cl
	return cl
}

// acquire makes cl a hold, or fails; the claim leaves nothing behind then.
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
	defer by.stop()
	if err := c.start(by, cl); err != nil {
		return nil, err
	}
	return c.await(by, cl, true)
}

// checkedID stands for the id of a want that is checked before it is given one.
const checkedID = 1

// prepare completes cl from its requests and checks it.
func (c *Client) prepare(ctx context.Context, cl *claim) error {
	cl.want.ID = checkedID
	if !cl.waits {
		cl.want.Wait = Forever
	}
	c.inherit(ctx, cl)
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
		return cl.givenUp(ctx)
	}
	return nil
}

// start sends cl for the first time, and returns when the engine has answered. If by ends before
// that, start gives the claim up.
func (c *Client) start(by caller, cl *claim) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return wrap(cl.op, cl.path, errClosed)
	}
	cl.id = c.enter()
	cl.want.ID = cl.id
	c.claims[cl.id] = cl
	cl.flying++
	c.mu.Unlock()
	patience := c.patience()
	if cl.want.Wait < MaxDuration {
		patience = max(cl.want.Wait, c.closeBound())
	}
	err := c.send(by, cl, cl.want, patience)
	if err == nil {
		return nil
	}
	c.mu.Lock()
	if cl.phase != over && cl.sent && !cl.answered && by.Err() != nil && !isRefusal(err) {
		after, done := by.confirming()
		defer done()
		return c.giveUp(after, cl, cl.givenUp(by))
	}
	defer c.unlock()
	if cl.phase == over {
		return cl.ending() // ended meanwhile, by Close for instance
	}
	c.drop(cl, wrap(cl.op, cl.path, err), cl.sent && !cl.answered)
	c.advance()
	return cl.ending()
}

// send sends what cl wants until it is answered, and learns from the answer. The
// caller has counted it in cl.flying.
func (c *Client) send(by caller, cl *claim, want Want, patience time.Duration) error {
	by.tries = want.Wait == 0
	tries, sent := 0, byHint
	stamped := c.session.TTL > 0 || want.MaxHold > 0 || want.Revision > 0
	err := c.callFor(by, patience, func(ctx context.Context, k Key) (err error) {
		tries++
		if (c.session.TTL > 0 || tries > 1) && !c.maySend(cl, k) {
			return errPast
		}
		if tries == 1 {
			c.shorten(cl, &want)
		}
		held := c.key.Load() // before it is sent: what the answer says counts under this one
		if stamped {
			sent = c.clock() // before it is sent: what the answer promises counts from here (R12)
		}
		status, err := c.engine.Claim(ctx, k, want)
		if err != nil {
			return err
		}
		return c.take(cl, held, &status, sent)
	})
	c.mu.Lock()
	defer c.unlock()
	cl.flying--
	cl.sent = cl.sent || tries > 0
	if err != nil && tries == 1 && isRefusal(err) && !cl.answered {
		cl.sent = false // refused at the door: the engine has nothing of it
	}
	if cl.flying == 0 {
		if cl.phase == over {
			cl.wake() // a release may wait for this
		}
		if len(c.todo) > 0 && c.todo[cl.id] != nil {
			c.kick()
		}
	}
	return err
}

// shorten sets the wait of the first request to the time until cl.due, because the client may
// have attached the session first. Every repetition asks for the same wait.
func (c *Client) shorten(cl *claim, want *Want) {
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

// errStale discards an answer: the lease under which it was asked has passed, or
// the session was attached anew meanwhile, which tells what is true now.
var errStale error = &Error{Err: ErrSession, Detail: "answered after the lease had passed"}

// take takes in an answer to what was sent under the key k.
func (c *Client) take(cl *claim, k *Key, s *Status, sent time.Duration) error {
	c.mu.Lock()
	defer c.unlock()
	if c.ttl > 0 {
		c.settle(c.clock())
	}
	if c.session.TTL > 0 && !c.holds(k) {
		return errStale
	}
	cl.answered = true
	if c.learn(cl, s, sent) {
		c.owed = 2
		c.payOwed()
	}
	c.advance()
	if cl.phase == over && s.State != Ended && !c.closed {
		c.todo[cl.id] = cl // whoever gave it up may have taken it for ended
		c.kick()
	}
	return nil
}

// errPast refuses to send what nobody wants any more and no session has.
var errPast error = &Error{Err: ErrNotHeld, Detail: "the session was attached anew without it"}

// maySend reports whether cl may be sent under the key k. What is over is sent
// only to be ended after its answer. Under a key that it has not been sent or
// named with before, or after the engine has told its end, it could be made
// anew, and nobody would know of it.
func (c *Client) maySend(cl *claim, k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.phase == over && (cl.epoch != k.Epoch || cl.known && cl.status.State == Ended) {
		return false
	}
	cl.epoch = k.Epoch
	return true
}

// await waits until cl is granted and hands it out, or says why it never will
// be. With final the claim is given up when by ends.
func (c *Client) await(by caller, cl *claim, final bool) (*Hold, error) {
	var late <-chan time.Time
	look := cl.due.Add(cl.slack) // after the engine's own bound, in case its notification is lost
	ending := by.Done()          // nil after the deadline, while the engine has time to name the blockers
	for {
		c.mu.Lock()
		c.check(cl)
		ended := by.Err() != nil
		switch {
		case cl.phase == over:
			c.unlock()
			return nil, cl.ending()
		case ended && final && ending != nil && cl.phase == inLine && cl.byContext && by.Err() == context.DeadlineExceeded:
			ending = nil
			timer := time.NewTimer(min(cl.slack, boundNews))
			defer timer.Stop()
			late = timer.C
		case ended && final && (ending != nil || cl.phase != inLine):
			after, done := by.confirming()
			defer done()
			return nil, c.giveUp(after, cl, cl.givenUp(by))
		case cl.phase == granted && !cl.confirm:
			cl.taken = true
			if cl.first.base == nil {
				cl.first.base = by.Context
				cl.first.exclusive = cl.needsExclusive()
			}
			c.unlock()
			return &cl.first, nil
		case ended && !final:
			err := cl.givenUp(by)
			c.unlock()
			return nil, err
		case cl.phase == granted:
			if err := c.ask(by, cl, final); err != nil {
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
			<-changed // a select would cost as much again
			continue
		}
		select {
		case <-changed:
		case <-ending:
		case <-late:
			late, look = nil, time.Now().Add(confirmBound)
			if err := c.pastBound(by, cl, final); err != nil {
				return nil, err
			}
		}
	}
}

// pastBound finds out what became of cl, whose bound has passed without news of it.
// With final it is given up if that is not known, or if it waits still. nil says
// that there is something to go on with.
func (c *Client) pastBound(by caller, cl *claim, final bool) error {
	after, done := by.confirming()
	defer done()
	err := c.lastLook(after, cl)
	c.mu.Lock()
	if cl.phase != inLine {
		c.unlock()
		return nil
	}
	why := cl.refused(TimedOut, nil)
	if by.Err() != nil {
		why = cl.givenUp(by)
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

// lastLook asks the engine what became of cl, whose bound has passed without news
// of it: who refuses must say who stands in the way, and it may have been granted
// just in time. An error says that nobody knows.
func (c *Client) lastLook(ctx context.Context, cl *claim) error {
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
			c.learn(cl, &s, byHint)
		}
		c.unlock()
		return nil
	}
	return nil
}

// ask asks what became of cl, whose grant was learned by a hint, so that its
// longest hold can be counted. It is called with c.mu held, returns without it.
func (c *Client) ask(by caller, cl *claim, final bool) error {
	cl.flying++
	want := cl.want
	c.unlock()
	err := c.send(by, cl, want, c.patience())
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
		return cl.ending()
	}
	return wrap(cl.op, cl.path, err)
}
