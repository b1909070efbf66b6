package lockkeeper

import (
	"context"
	"errors"
	"time"
)

// tick is how often deadlines are looked at behind their timer, which stands
// still while the computer sleeps.
const tick = time.Second

// guard sees to it that the deadline of the session is watched. The tick is no
// later than the deadline when it is set, and renewals only move that further.
func (c *Client) guard() {
	if c.ttl > 0 && !c.armed {
		c.arm(c.deadline())
	}
}

// arm sees to it that the moment at is noticed.
func (c *Client) arm(at time.Duration) {
	if c.closed {
		return
	}
	now := c.clock()
	at = min(at, now+tick)
	if c.armed && c.tickAt <= at {
		return
	}
	if !c.armed {
		c.seen = now // nobody looked while there was nothing to watch
	}
	c.armed, c.tickAt = true, at
	if c.ticker == nil {
		c.ticker = time.AfterFunc(max(at-now, 0), c.onTick)
	} else {
		c.ticker.Reset(max(at-now, 0))
	}
}

// onTick ends what has passed its deadline.
func (c *Client) onTick() {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.armed = false
	now := c.clock()
	c.settle(now)
	next := now + tick
	for cl := range c.ends {
		if end := cl.end(); now >= end.at {
			c.outlive(cl, end)
		} else {
			next = min(next, end.at)
		}
	}
	if c.ttl > 0 && c.alive {
		next = min(next, c.deadline())
		if now >= c.renewAt {
			c.kick() // its own timer stood still
		}
	}
	if len(c.ends) > 0 || c.ttl > 0 && c.alive && len(c.claims) > 0 {
		c.arm(next)
	}
}

// deadline is the moment from which all holds of the session count as lost.
func (c *Client) deadline() time.Duration { return c.good + c.ttl - margin(c.ttl) }

// settle ends everything if the session's deadline has passed. It is called
// before anything that may move the deadline: what is lost is lost for good.
func (c *Client) settle(now time.Duration) {
	stoodStill := now-c.seen > 2*tick
	c.seen = now
	if c.ttl == 0 || !c.alive || now < c.deadline() {
		return
	}
	why, cause := Unreachable, c.failure
	if stoodStill || c.failures == 0 && !c.renewing {
		why, cause = Suspended, nil // nothing failed: this process just did not run
	}
	c.alive, c.lapsed = false, now
	c.key.Store(nil)
	for _, cl := range c.claims {
		if cl.phase != asking {
			cl.lapse = Lapse{ID: cl.id, Reason: Expired, EndsAt: c.endsAt}
		}
		switch cl.phase {
		case granted:
			gone := lost(cl, why, "")
			gone.Cause = cause
			c.drop(cl, gone, true)
		case inLine:
			c.drop(cl, cl.refused(why, cause), true)
		}
	}
}

// fail notes that the session could not be renewed, or attached. Of the reason only
// the words are kept: a loss is no ErrUnavailable, and no end of a context, to act on.
func (c *Client) fail(err error) {
	c.failures++
	if !errors.Is(err, context.Canceled) { // then a caller has gone, and the engine is not to blame
		c.failure = errors.New(err.Error())
	}
}

// check ends cl if a deadline of it has passed. Every use of a hold begins so.
func (c *Client) check(cl *claim) {
	if c.ttl == 0 && len(c.ends) == 0 {
		return
	}
	now := c.clock()
	c.settle(now)
	if end := cl.end(); end.why != NoReason && now >= end.at && cl.phase == granted {
		c.outlive(cl, end)
	}
}

// kick has the client's goroutine look for work; it starts with the first.
func (c *Client) kick() {
	if c.closed {
		return
	}
	if !c.running {
		c.running = true
		go c.run()
	}
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// run renews the session and mends what was left undone, until Close.
func (c *Client) run() {
	defer close(c.ran)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for c.life.Err() == nil {
		renew, cl, wait := c.nextJob()
		switch {
		case renew:
			c.renew()
		case cl != nil:
			c.mend(cl)
		default:
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-c.work:
			case <-c.life.Done():
			}
		}
	}
}

// nextJob says what to do next: renew, mend a claim, or wait.
func (c *Client) nextJob() (renew bool, mend *claim, wait time.Duration) {
	c.mu.Lock()
	defer c.unlock()
	now := c.clock()
	c.settle(now)
	if !c.alive && c.ttl > 0 && now > c.lapsed+2*c.ttl {
		clear(c.todo) // nobody has renewed the session: the engine has ended it all
	}
	next := Forever
	attached := c.key.Load() != nil
	switch {
	case attached && c.renewSoon:
		next = c.retryAt
	case attached && c.ttl > 0:
		next = max(c.renewAt, c.retryAt)
	case !attached && len(c.claims)+len(c.todo) > 0:
		next = c.retryAt
	}
	if now >= next {
		return true, nil, 0
	}
	for _, cl := range c.todo {
		if cl.flying > 0 || cl.parting {
			continue // another goroutine works on it, and wakes this one if the work must be repeated
		}
		if now >= c.mendAt {
			return false, cl, 0
		}
		next = min(next, c.mendAt)
		break
	}
	return false, nil, min(max(next-now, time.Millisecond), time.Hour)
}

// renew renews the session, or attaches it again where it is not attached.
func (c *Client) renew() {
	ctx, cancel := c.bounded(c.life, 0)
	defer cancel()
	held := c.key.Load()
	k, ok := c.keyNow()
	if !ok {
		if _, err := c.attached(ctx); err != nil {
			c.failed("attach", err)
		}
		return
	}
	c.mu.Lock()
	c.renewing, c.renewSoon = true, false
	c.mu.Unlock()
	sent := c.clock()
	lease, err := c.engine.Renew(ctx, k)

	c.mu.Lock()
	c.renewing = false
	c.settle(c.clock())
	if !c.holds(held) {
		c.unlock()
		return // lost or attached anew meanwhile: this answer is of the past
	}
	if err == nil {
		c.renewed(lease, sent)
	}
	c.unlock()
	switch {
	case err == nil:
	case errors.Is(err, ErrSession):
		c.detach(k)
	default:
		c.failed("renew", err)
	}
}

// failed notes a failure of the goroutine's own calls, and when to try again.
func (c *Client) failed(what string, err error) {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	if what == "renew" {
		c.fail(err)
		c.renewSoon = true
	}
	c.turnAway(err)
	c.retryAt = c.clock() + c.slowDown(c.retries)
	c.retries++
	c.logger.Warn("engine does not answer", "op", what, "session", c.session.ID, "error", err)
}

// turnAway ends all waits if err says that this client is not let in any more: none
// of them can come to anything that it would learn of. What is held stays so until
// its deadline, for nobody else can have it sooner.
func (c *Client) turnAway(err error) {
	var e *Error
	if !errors.As(err, &e) || e.Err != ErrDenied {
		return
	}
	for _, cl := range c.claims {
		if cl.phase == inLine {
			c.drop(cl, wrap(cl.op, cl.path, err), true)
		}
	}
}

// slowDown is the pause after so many failures: never so long that a short TTL
// passes in it.
func (c *Client) slowDown(failures int) time.Duration {
	d := backoff(failures)
	if c.session.TTL > 0 {
		d = min(d, c.session.TTL/6)
	}
	return d
}

// mend sends again what was left without an answer: first the want, since only a
// claim that was answered can be ended for good, then the end.
func (c *Client) mend(cl *claim) {
	c.mu.Lock()
	if c.todo[cl.id] != cl || cl.flying > 0 || cl.parting {
		c.unlock()
		return
	}
	if cl.sent && !cl.answered || cl.resend {
		revision := cl.want.Revision
		cl.flying++
		want := cl.want
		c.unlock()
		err := c.send(caller{Context: c.life}, cl, want, 0)
		if err != nil && !isRefusal(err) {
			c.mendLater(err)
			return
		}
		c.mu.Lock()
		cl.answered = true // a refusal is an answer too
		if err != nil && cl.phase == inLine {
			c.drop(cl, wrap(cl.op, cl.path, err), false)
		}
		if cl.want.Revision == revision {
			cl.resend = false
		}
	}
	if cl.phase != over {
		if !cl.resend {
			delete(c.todo, cl.id)
		}
		c.unlock()
		return
	}
	if cl.flying > 0 || c.todo[cl.id] != cl {
		c.unlock()
		return
	}
	c.unlock()
	if err := c.end(c.life, cl, 0); err != nil && !isRefusal(err) {
		c.mendLater(err)
		return
	}
	c.mu.Lock()
	delete(c.todo, cl.id)
	c.mends = 0
	c.unlock()
}

// mendLater notes that mending failed, and when to try again.
func (c *Client) mendLater(err error) {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.mendAt = c.clock() + c.slowDown(c.mends)
	c.mends++
	c.logger.Debug("engine does not answer", "op", "release", "session", c.session.ID, "error", err)
}

// end ends cl at the engine, which must know it.
func (c *Client) end(ctx context.Context, cl *claim, patience time.Duration) error {
	return c.call(ctx, patience, func(ctx context.Context, k Key) error {
		return c.engine.End(ctx, k, cl.endRequest())
	})
}

// finish ends cl, which is over here, at the engine now; what is not
// acknowledged is repeated in the background.
func (c *Client) finish(ctx context.Context, cl *claim, patience time.Duration) error {
	err := c.end(ctx, cl, patience)
	if err == nil || isRefusal(err) {
		return err
	}
	c.mu.Lock()
	if !c.closed {
		c.todo[cl.id] = cl
		c.kick()
	}
	c.unlock()
	return err
}
