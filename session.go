package lockkeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/deadlines"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// Bounds of repeated calls.
const (
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = 2 * time.Second
	callBound      = 10 * time.Second // an engine that has not answered by then counts as unreachable
	sessionRetries = 8                // this many refusals in a row: another client keeps taking the session over
)

// call makes one call of the engine under the session's key until it is answered. It attaches the
// session if necessary. It repeats a call whose outcome is unknown, which R16 makes safe, until ctx
// ends or patience is over, and then returns ErrUnavailable. Without patience it tries once, and once more
// if the session has to be attached again.
func (c *Client) call(ctx context.Context, patience time.Duration, do func(context.Context, Key) error) error {
	return c.callFor(caller{Context: ctx}, patience, do)
}

// callFor is call for a caller that may give up before the engine answers.
func (c *Client) callFor(by caller, patience time.Duration, do func(context.Context, Key) error) error {
	var since time.Duration
	if !c.prompt {
		since = c.clock()
	}
	left, err := c.timeLeft(by, patience, 0)
	if err != nil {
		return unavailable(err, by)
	}
	for try := 0; ; try++ {
		err = c.exchange(by, left, do)
		if err == nil || isRefusal(err) {
			return err
		}
		unknown := errors.Is(err, ErrSession)
		if c.prompt && try == 0 {
			since = c.clock()
		}
		var outage error
		if left, outage = c.timeLeft(by, patience, c.clock()-since); outage != nil {
			return unavailable(outage, by)
		}
		again := left > 0 || unknown && try == 0
		// A server that drains is tried twice: another server of the same engine may answer then.
		turnedAway := by.try && try > 0 && errors.Is(err, Draining)
		if !again || turnedAway || by.Err() != nil || unknown && try >= sessionRetries {
			return unavailable(err, by)
		}
		if unknown && try == 0 {
			continue // resume the session at once: the engine has answered
		}
		if !c.pause(by, min(backoff(try), left)) {
			return unavailable(err, by)
		}
	}
}

// exchange does one try of call.
func (c *Client) exchange(by caller, left time.Duration, do func(context.Context, Key) error) error {
	k, err := c.attachedFor(by, left)
	if err == nil {
		ctx, cancel := c.bounded(by, left)
		defer cancel()
		err = do(ctx, k)
	}
	switch {
	case err == nil:
	case by.Err() != nil && (errors.Is(err, context.Cause(by)) || by.grace != nil && errors.Is(err, context.Canceled)):
		return unavailable(by.Err(), by) // the end of a context is no answer, even if its cause matches a sentinel
	case errors.Is(err, ErrSession):
		c.detach(k)
	}
	return err
}

// attachedFor is attached, bounded as a round trip is. Without a need to attach it costs nothing.
func (c *Client) attachedFor(by caller, left time.Duration) (Key, error) {
	if k, ok := c.currentKey(); ok {
		return k, nil
	}
	by.grace = nil
	ctx, cancel := c.bounded(by, left)
	defer cancel()
	return c.attached(ctx)
}

// bounded gives one round trip its own deadline, so that the client notices a dead connection. An
// engine in this process answers at once: there, no deadline ends a call, so that no outcome is
// unknown. The context keeps its values, such as the span of a trace.
func (c *Client) bounded(by caller, left time.Duration) (context.Context, context.CancelFunc) {
	ctx := by.Context
	if c.prompt {
		if ctx == context.Background() {
			return c.life, func() {}
		}
		return &lifeWithValues{c.life, ctx}, func() {}
	}
	d := c.roundTrip()
	if left > 0 {
		d = min(d, left)
	}
	bounded := roundtrip.New(ctx, c.life, time.Now().Add(d), by.grace) // it ends with c.life: Close waits for no call
	if by.bounded {
		bounded.EndInOutage()
	}
	return bounded, bounded.End
}

// lifeWithValues ends with a client's life, and has the values of a caller's context.
type lifeWithValues struct {
	context.Context
	values context.Context
}

func (l *lifeWithValues) Value(key any) any { return l.values.Value(key) }

func (c *Client) roundTrip() time.Duration {
	return deadlines.RoundTrip(c.session.TTL, callBound)
}

// unavailable returns the error of a call without an answer. It is never ErrNotAcquired.
func unavailable(err error, ctx context.Context) *Error {
	e := &Error{Err: ErrUnavailable, Cause: err}
	if stated, ok := err.(*Error); ok && stated.Err == ErrUnavailable {
		named := *stated
		e = &named
	}
	switch ended := whyEnded(ctx); {
	case ended == nil:
	case e.Cause == nil || e.Cause == ctx.Err():
		e.Cause = ended
	default:
		e.Cause = fmt.Errorf("%w; %w", e.Cause, ended)
	}
	return e
}

// whyEnded returns the error of ctx, with its cause if that differs; nil if ctx has not ended, or
// if it is a context of the client and not of the program.
func whyEnded(ctx context.Context) error {
	ended := ctx.Err()
	if ended == nil || ctx.Value(outlivingKey{}) != nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != ended {
		return fmt.Errorf("%w: %w", ended, cause)
	}
	return ended
}

// backoff returns the pause before the next try.
func backoff(try int) time.Duration {
	d := min(minBackoff<<min(try, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}

// pause waits for d, and reports whether neither ctx nor the client has ended.
func (c *Client) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.life.Done():
	}
	return false
}

// attached returns the key of the session, which it attaches first if necessary. One goroutine
// attaches while the others wait. If the engine refuses because the session has another epoch,
// attached tries once more with that epoch: the answer to an earlier Attach was lost, or another
// client had the session. If the engine refuses again, somebody else is attaching too.
func (c *Client) attached(ctx context.Context) (Key, error) {
	for refused := false; ; {
		if k, ok := c.currentKey(); ok {
			return k, nil
		}
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return Key{}, errClosed
		}
		if c.key.Load() != nil {
			c.mu.Unlock()
			continue
		}
		other := c.attaching
		if other == nil {
			mine := make(chan struct{})
			c.attaching = mine
			k, err := c.attach(ctx, mine)
			if presentEpoch(err) == 0 || refused {
				return k, err
			}
			refused = true
			continue
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return Key{}, ctx.Err()
		}
	}
}

// presentEpoch returns the present epoch of the session if err is an Attach that the engine refused
// for that epoch; otherwise 0.
func presentEpoch(err error) uint64 {
	var e *Error
	if errors.As(err, &e) && e.Err == ErrSession {
		return e.Epoch
	}
	return 0
}

// attach attaches the session and names all claims that are still wanted, those in flight included.
// The caller holds c.mu; attach unlocks it. It closes mine at the end.
func (c *Client) attach(ctx context.Context, mine chan struct{}) (Key, error) {
	c.mu.Unlock()
	c.closeSlots() // so that it names all claims
	c.mu.Lock()
	s := c.session
	s.Epoch = c.epoch
	named := make([]*claim, 0, len(c.claims))
	for id, cl := range c.claims {
		s.Named = append(s.Named, id)
		named = append(named, cl)
	}
	slices.Sort(s.Named)
	s.Lapsed = c.lapses()
	dropped := make([]uint64, 0, len(c.unfinished))
	for id, cl := range c.unfinished {
		if cl.phase == over {
			dropped = append(dropped, id)
		}
	}
	again := c.resumes
	c.mu.Unlock()

	sent := c.clock()
	lease, err := c.engine.Attach(ctx, s, c.notify)
	epoch := presentEpoch(err)
	if err == nil {
		epoch = lease.Key.Epoch // even if this client discards the lease below
	}
	if err == nil && again {
		err = c.reconcile(ctx, s.Named, lease.Claims)
	}
	var slots *openedSlots
	if err == nil {
		slots = c.openSlots(lease.Key)
	}

	c.mu.Lock()
	if err == nil && c.closed {
		c.unleft, err = &lease.Key, errClosed // Close waits for this, and leaves
	}
	c.attaching = nil
	close(mine)
	if epoch != 0 {
		c.epoch = epoch
	}
	if err != nil {
		c.noteFailure(err)
		c.unlock()
		return Key{}, err
	}
	c.expireSession(c.clock()) // a hold that was lost meanwhile stays lost
	c.resumes = true
	for _, cl := range named {
		cl.epoch = lease.Key.Epoch
	}
	c.resetLowestOpen()
	c.acked.Store(0) // currentKey takes no lock; the session may be new, and its leases counted from 1 again
	c.slots.Store(slots)
	c.key.Store(&lease.Key)
	for _, id := range dropped {
		delete(c.unfinished, id) // the engine has ended it, and refuses a late request under an older key
	}
	c.applyLease(lease, sent)
	k, _ := c.currentKey()
	c.unlock()
	return k, nil
}

// reconcile asks the engine about named claims that the lease of Attach does not list: an engine
// that lost its state knows none of them. A hold that the engine does not know is lost before the
// new lease can extend it; the client sends a waiting claim again.
func (c *Client) reconcile(ctx context.Context, named []uint64, listed []Status) error {
	known := make(map[uint64]bool, len(listed))
	for i := range listed {
		known[listed[i].Ref.ID] = true
	}
	if !slices.ContainsFunc(named, func(id uint64) bool { return !known[id] }) {
		return nil
	}
	var found []Status
	for s, err := range c.engine.List(ctx, Query{Session: c.session.ID, Brief: true}) {
		if errors.Is(err, ErrUnsupported) {
			break // without List, claims that the lease does not list count as unknown
		}
		if err != nil {
			return err
		}
		if s.Ref.Session == c.session.ID && !known[s.Ref.ID] {
			known[s.Ref.ID] = true
			found = append(found, s)
		}
	}
	c.mu.Lock()
	defer c.unlock()
	for _, id := range named {
		cl := c.claims[id]
		if cl == nil || known[id] {
			continue
		}
		switch cl.phase {
		case granted:
			c.endClaim(cl, lost(cl, EngineRestarted, ""), false)
		case inLine:
			cl.resend, cl.known = true, false
			cl.ends.Recount()
			c.unfinished[id] = cl
			c.wakeWorker()
		}
	}
	for i := range found {
		if cl := c.claims[found[i].Ref.ID]; cl != nil {
			c.applyStatus(cl, &found[i], fromHint)
		}
	}
	return nil
}

// applyLease applies a lease whose request left this client at sent.
func (c *Client) applyLease(lease Lease, sent time.Duration) {
	c.failures, c.failure, c.quorumLost, c.retries = 0, nil, false, 0
	c.lease.Extend(sent, lease.TTL, rand.N[time.Duration])
	c.endsAt = lease.EndsAt
	c.ackRenewals = max(c.ackRenewals-1, 0)
	if c.lease.TTL > 0 {
		c.wakeWorker()
	}
	for i := range lease.Claims {
		s := &lease.Claims[i]
		switch cl := c.find(s.Ref); {
		case cl == nil:
			c.endUnknown(s)
		case cl.isSetBack(s, sent):
			c.applySetBack(cl, s, sent)
		case c.applyStatus(cl, s, sent):
			c.ackRenewals = max(c.ackRenewals, 1)
		}
	}
	c.acked.Store(lease.Number)
	c.renewToAck()
	if len(c.claims) > 0 {
		c.watchDeadline()
	}
}

// renewToAck renews soon if an end is unacknowledged: until then the engine assumes that the holder
// does not know of it (R12). The client acknowledges an end that a lease stated by the number of
// that lease in its next call. An end in the answer to Claim needs one more lease, which states it
// too.
func (c *Client) renewToAck() {
	if c.acked.Load() == 0 {
		c.ackRenewals = 0 // the engine ignores acknowledgements
	}
	if c.ackRenewals > 0 {
		c.renewSoon = true
		c.wakeWorker()
	}
}

// endUnknown ends a claim of the session that this client does not know: the engine made it a
// second time, from a request that arrived again after the engine had forgotten the end of the
// claim.
func (c *Client) endUnknown(s *Status) {
	live := (s.State == Waiting || s.State == Held) && !s.Lapsed
	if s.Ref.Session != c.session.ID || !live || c.closed || c.session.TTL == 0 {
		return
	}
	cl := c.newClaim("release")
	cl.id, cl.phase, cl.sent, cl.answered = s.Ref.ID, over, true, true
	c.unfinished[cl.id] = cl
	c.wakeWorker()
}

// find returns the claim that ref names, if this client still has it or still has to end it.
func (c *Client) find(ref Ref) *claim {
	if ref.Session != c.session.ID {
		return nil
	}
	if cl := c.claims[ref.ID]; cl != nil {
		return cl
	}
	return c.unfinished[ref.ID]
}

// notify applies hints of the engine. Without statuses it reports that some hints may be missing.
func (c *Client) notify(statuses []Status) {
	c.mu.Lock()
	if len(statuses) == 0 && c.lease.TTL > 0 && c.lease.Alive {
		c.renewSoon = true
		c.wakeWorker()
	}
	for i := range statuses {
		s := &statuses[i]
		if cl := c.find(s.Ref); cl == nil {
			c.endUnknown(s)
		} else if c.lease.TTL == 0 || c.lease.Alive {
			// Without a lease a hint has no effect: the next Attach reports the state.
			c.applyStatus(cl, s, fromHint)
		}
	}
	c.unlock()
}

// detach records that the engine refused the key k. Holds live on until their deadline; the next
// call attaches again.
func (c *Client) detach(k Key) {
	c.mu.Lock()
	if c.isCurrentEpoch(k) {
		c.key.Store(nil)
		c.wakeWorker()
	}
	c.unlock()
}

// unlock unlocks c.mu, and then ends the contexts of the holds that have ended. That may run code
// of the program, which must not find c.mu locked.
func (c *Client) unlock() {
	ended := c.ended
	c.ended = nil
	c.mu.Unlock()
	for _, cancel := range ended {
		cancel()
	}
}
