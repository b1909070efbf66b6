package lockkeeper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/deadlines"
)

// tick is the longest time between two checks of deadlines. A timer set for the deadline itself
// would be late, because it stands still while the computer sleeps.
const tick = time.Second

// watchDeadline arms the ticker for the deadline of the session, unless it is armed: a renewal only
// moves that deadline later.
func (c *Client) watchDeadline() {
	if c.lease.TTL > 0 && !c.armed {
		c.armTicker(c.lease.Deadline())
	}
}

// armTicker makes the ticker fire at that moment at the latest.
func (c *Client) armTicker(at time.Duration) {
	if c.closed {
		return
	}
	now := c.clock()
	at = min(at, now+tick)
	if c.armed && c.tickAt <= at {
		return
	}
	if !c.armed {
		c.ranAt = now // the client read no clock while it had no deadline: that is no suspension
	}
	c.armed, c.tickAt = true, at
	if c.ticker == nil {
		c.ticker = time.AfterFunc(max(at-now, 0), c.onTick)
	} else {
		c.ticker.Reset(max(at-now, 0))
	}
}

// onTick ends everything whose deadline has passed.
func (c *Client) onTick() {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.armed = false
	now := c.clock()
	c.expireSession(now)
	next := now + tick
	for cl := range c.ends {
		if end := cl.ends.First(); end.Passed(now) {
			c.lapseClaim(cl, end)
		} else {
			next = min(next, end.At)
		}
	}
	leased := c.lease.TTL > 0 && c.lease.Alive
	if leased {
		next = min(next, c.lease.Deadline())
		if now >= c.lease.RenewAt {
			c.wakeWorker() // its own timer stood still
		}
	}
	if len(c.ends) > 0 || leased && len(c.claims) > 0 {
		c.armTicker(next)
	}
}

// Margin is how much earlier than the engine a client considers a duration of the engine to be over,
// be it a TTL or the time until an announced end (R12):
//
//	deadline = sentAt + d - Margin(d)
//	Margin(d) = d*driftBound + 10ms, driftBound = 1/100
//
// It covers clocks whose rates differ by at most driftBound. Every client of an engine, and every
// engine that has to know when a client stops, counts by it.
func Margin(d time.Duration) time.Duration { return deadlines.Margin(d) }

// expireSession ends all claims if the session's deadline has passed. Callers call it before they
// move the deadline, so that a lost hold stays lost.
func (c *Client) expireSession(now time.Duration) {
	suspended := now-c.ranAt > 2*tick
	c.ranAt = now
	if !c.lease.Expire(now) {
		return
	}
	why, cause := Unreachable, c.failure
	if c.quorumLost {
		why = QuorumLost
	}
	if suspended || c.failures == 0 && !c.renewing {
		why, cause = Suspended, nil // no renewal failed: this process did not run
	}
	c.key.Store(nil)
	for _, cl := range c.claims {
		if cl.phase != asking {
			cl.lapse = Lapse{ID: cl.id, Reason: Expired, EndsAt: c.endsAt}
		}
		switch cl.phase {
		case granted:
			gone := lost(cl, why, "")
			gone.Cause = cause
			c.endClaim(cl, gone, true)
		case inLine:
			c.endClaim(cl, cl.refused(why, cause), true)
		}
	}
}

// noteFailure records that the session could not be attached or renewed. It keeps only the words of
// err: the error of a loss must not match ErrUnavailable or the end of a context.
func (c *Client) noteFailure(err error) {
	c.failures++
	if !errors.Is(err, context.Canceled) { // otherwise a caller gave up, which is no fault of the engine
		c.failure = errors.New(err.Error())
		// A renewal that only ran out of time says nothing new about the cluster.
		silent := errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, Unreachable)
		c.quorumLost = errors.Is(err, QuorumLost) || c.quorumLost && silent
	}
}

// expireClaim ends cl if one of its deadlines has passed. Every use of a hold begins with it.
func (c *Client) expireClaim(cl *claim) {
	if c.lease.TTL == 0 && len(c.ends) == 0 {
		return
	}
	now := c.clock()
	c.expireSession(now)
	if end := cl.ends.First(); end.Passed(now) && cl.phase == granted {
		c.lapseClaim(cl, end)
	}
}

// wakeWorker wakes the client's goroutine, and starts it the first time.
func (c *Client) wakeWorker() {
	if c.closed {
		return
	}
	if !c.running {
		c.running = true
		go c.serve()
	}
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// serve is the client's goroutine: until Close it renews the session, and starts another goroutine for
// each claim that a caller left unfinished, one after the other. So a call that an engine does not
// answer delays no renewal: a failed one has to be known while much of the TTL is left.
func (c *Client) serve() {
	defer close(c.stopped)
	var finisher sync.WaitGroup
	defer finisher.Wait()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for c.life.Err() == nil {
		renew, cl, wait := c.nextJob()
		switch {
		case renew:
			c.renew()
		case cl != nil:
			finisher.Go(func() {
				c.finishClaim(cl)
				c.mu.Lock()
				c.finishing = false
				c.wakeWorker()
				c.unlock()
			})
		default:
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-c.wakeup:
			case <-c.life.Done():
			}
		}
	}
}

// nextJob returns the next job of the goroutine: to renew, to finish a claim, after which finishing is
// false again, or to wait.
func (c *Client) nextJob() (renew bool, unfinished *claim, wait time.Duration) {
	c.mu.Lock()
	defer c.unlock()
	now := c.clock()
	c.expireSession(now)
	if c.lease.EngineEnded(now) {
		clear(c.unfinished)
	}
	next := Forever
	attached := c.key.Load() != nil
	switch {
	case attached && c.renewSoon:
		next = c.retryAt
	case attached && c.lease.TTL > 0:
		next = max(c.lease.RenewAt, c.retryAt)
	case !attached && len(c.claims)+len(c.unfinished) > 0:
		next = c.retryAt
	}
	if now >= next {
		return true, nil, 0
	}
	for _, cl := range c.unfinished {
		if c.finishing {
			break // its end wakes this goroutine
		}
		if cl.inFlight > 0 || cl.endInFlight {
			continue // another goroutine works on it, and wakes this one if that fails
		}
		if now >= c.finishAt {
			c.finishing = true
			return false, cl, 0
		}
		next = min(next, c.finishAt)
		break
	}
	return false, nil, min(max(next-now, time.Millisecond), time.Hour)
}

// renew renews the session, or attaches it if it is not attached.
func (c *Client) renew() {
	ctx, cancel := c.bounded(caller{Context: c.life}, 0)
	defer cancel()
	held := c.key.Load()
	k, ok := c.currentKey()
	if !ok {
		if _, err := c.attached(ctx); err != nil {
			c.retryLater("attach", err)
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
	c.expireSession(c.clock())
	if !c.isLatestKey(held) {
		c.unlock()
		return // the session lapsed or was attached again meanwhile: the answer is outdated
	}
	if err == nil {
		c.applyLease(lease, sent)
	}
	c.unlock()
	switch {
	case err == nil:
	case errors.Is(err, ErrSession):
		c.detach(k)
	default:
		c.retryLater("renew", err)
	}
}

// retryLater records that the goroutine failed to renew or attach, and the time of the next try.
func (c *Client) retryLater(what string, err error) {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	if what == "renew" {
		c.noteFailure(err)
		c.renewSoon = true
	}
	c.endDeniedWaits(err)
	c.retryAt = c.clock() + c.retryPause(c.retries)
	c.retries++
	c.log(slog.LevelWarn, "engine does not answer", "op", what, "session", c.session.ID, "error", err)
}

// endDeniedWaits ends all waits if the engine denies this client, which could not learn of a grant.
// Holds stay until their deadline, because the engine grants them to no other client before it.
func (c *Client) endDeniedWaits(err error) {
	var e *Error
	if !errors.As(err, &e) || e.Err != ErrDenied {
		return
	}
	for _, cl := range c.claims {
		if cl.phase == inLine {
			c.endClaim(cl, wrap(cl.op, cl.path, err), true)
		}
	}
}

// retryPause returns the pause after that many failures. It is short compared with the TTL.
func (c *Client) retryPause(failures int) time.Duration {
	return deadlines.RetryPause(c.session.TTL, backoff(failures))
}

// finishClaim completes the work on a claim that a caller left unfinished. It first repeats a want
// without an answer, because only the end of an answered claim is final. Then it ends a claim that
// is over in this client.
func (c *Client) finishClaim(cl *claim) {
	c.mu.Lock()
	if c.unfinished[cl.id] != cl || cl.inFlight > 0 || cl.endInFlight {
		c.unlock()
		return
	}
	if cl.sent && !cl.answered || cl.resend {
		revision := cl.want.Revision
		cl.inFlight++
		want := cl.want
		c.unlock()
		err := c.send(caller{Context: c.life}, cl, want, 0)
		if err != nil && !isRefusal(err) {
			c.finishLater(err)
			return
		}
		c.mu.Lock()
		cl.answered = true // a refusal is an answer too
		if err != nil && cl.phase == inLine {
			c.endClaim(cl, wrap(cl.op, cl.path, err), false)
		}
		if cl.want.Revision == revision {
			cl.resend = false
		}
	}
	if cl.phase != over {
		if !cl.resend {
			delete(c.unfinished, cl.id)
		}
		c.unlock()
		return
	}
	if cl.inFlight > 0 || c.unfinished[cl.id] != cl {
		c.unlock()
		return
	}
	c.unlock()
	if err := c.end(c.life, cl, 0); err != nil && !isRefusal(err) {
		c.finishLater(err)
		return
	}
	c.mu.Lock()
	delete(c.unfinished, cl.id)
	c.finishFailures = 0
	c.unlock()
}

// finishLater records that finishClaim failed, and the time of the next try.
func (c *Client) finishLater(err error) {
	c.mu.Lock()
	defer c.unlock()
	if c.closed {
		return
	}
	c.finishAt = c.clock() + c.retryPause(c.finishFailures)
	c.finishFailures++
	c.log(slog.LevelDebug, "engine does not answer", "op", "release", "session", c.session.ID, "error", err)
}

// end ends cl at the engine, which must know it.
func (c *Client) end(ctx context.Context, cl *claim, patience time.Duration) error {
	return c.call(ctx, patience, func(ctx context.Context, k Key) error {
		return c.engine.End(ctx, k, cl.endRequest())
	})
}

// endNow ends cl, which is over in this client, at the engine. If the engine does not confirm it,
// the client's goroutine repeats it.
func (c *Client) endNow(ctx context.Context, cl *claim, patience time.Duration) error {
	err := c.end(ctx, cl, patience)
	if err == nil || isRefusal(err) {
		return err
	}
	c.mu.Lock()
	if !c.closed {
		c.unfinished[cl.id] = cl
		c.wakeWorker()
	}
	c.unlock()
	return err
}
