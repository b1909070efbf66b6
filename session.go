package lockkeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Bounds of what is repeated.
const (
	firstBackoff   = 50 * time.Millisecond
	lastBackoff    = 2 * time.Second
	slowestCall    = 10 * time.Second // an engine that has not answered by then is taken for unreachable
	sessionRetries = 8                // after so many refusals in a row somebody else has taken the session
)

// call does one exchange with the engine under the session's key until it is
// answered. It attaches the session when that is needed, and repeats what failed
// on the way, which R16 makes safe, until ctx ends or the patience is over; with
// no patience it tries once. Then the answer is ErrUnavailable.
func (c *Client) call(ctx context.Context, patience time.Duration, do func(context.Context, Key) error) error {
	return c.callFor(caller{Context: ctx}, patience, do)
}

// callFor is call for a caller that may give up before the engine answers its request.
func (c *Client) callFor(by caller, patience time.Duration, do func(context.Context, Key) error) error {
	var since time.Duration
	if !c.near {
		since = c.clock()
	}
	left := patience
	for try := 0; ; try++ {
		err := c.exchange(by, left, do)
		if err == nil || isRefusal(err) {
			return err
		}
		unknown := errors.Is(err, ErrSession)
		if c.near && try == 0 {
			since = c.clock()
		}
		left = patience - (c.clock() - since)
		again := left > 0 || unknown && try == 0
		// It tries once more, because another server of the same engine may answer then.
		turnedAway := by.tries && try > 0 && errors.Is(err, Draining)
		if !again || turnedAway || by.Err() != nil || unknown && try >= sessionRetries {
			return unavailable(err, by)
		}
		if unknown && try == 0 {
			continue // the usual way of a resume: no reason to wait
		}
		if !c.pause(by, min(backoff(try), left)) {
			return unavailable(err, by)
		}
	}
}

// exchange does one try of call.
func (c *Client) exchange(by caller, left time.Duration, do func(context.Context, Key) error) error {
	ctx, cancel := c.bounded(by.Context, left)
	defer cancel()
	k, err := c.attached(ctx)
	if err == nil && by.after != nil {
		var stop context.CancelFunc
		ctx, stop = c.bounded(by.after, left)
		defer stop()
	}
	if err == nil {
		err = do(ctx, k)
	}
	switch {
	case err == nil:
	case by.Err() != nil && (errors.Is(err, context.Cause(by)) || by.after != nil && errors.Is(err, by.after.Err())):
		return unavailable(by.Err(), by) // no answer, whatever the cause looks like
	case errors.Is(err, ErrSession):
		c.detach(k)
	}
	return err
}

// bounded gives one round trip its own deadline, so that a connection that is
// dead without saying so is noticed. An engine in this process answers at once:
// there ctx bounds the wait only, so that no outcome is unknown; its values, such as
// the span of a trace, are there all the same.
func (c *Client) bounded(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	if c.near {
		if ctx == context.Background() {
			return c.life, func() {}
		}
		return &lifeWithValues{c.life, ctx}, func() {}
	}
	d := c.roundTrip()
	if left > 0 {
		d = min(d, left)
	}
	bounded, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(c.life, cancel) // Close waits for no call
	return bounded, func() { stop(); cancel() }
}

// lifeWithValues ends with a client's life, and has the values of a caller's context.
type lifeWithValues struct {
	context.Context
	values context.Context
}

func (l *lifeWithValues) Value(key any) any { return l.values.Value(key) }

func (c *Client) roundTrip() time.Duration {
	if c.session.TTL == 0 {
		return slowestCall
	}
	return min(slowestCall, c.session.TTL/3)
}

// unavailable is the error of what was not answered: never "taken".
func unavailable(err error, ctx context.Context) *Error {
	e := &Error{Err: ErrUnavailable, Cause: err}
	if told, ok := err.(*Error); ok && told.Err == ErrUnavailable {
		named := *told
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

// backoff is how long to wait before the next try.
func backoff(try int) time.Duration {
	d := min(firstBackoff<<min(try, 10), lastBackoff)
	return d/2 + rand.N(d/2)
}

// pause waits for d and reports whether neither ctx nor the client has ended.
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

// attached returns the key of the session, which it attaches first if need be.
// Only one attaches; the others wait for it. If it is refused because the session
// has another epoch than is known here, it is repeated at once with that one: an
// earlier Attach was not answered, or another client had the session. If it is
// refused again, somebody else is attaching too, and the caller waits a while.
func (c *Client) attached(ctx context.Context) (Key, error) {
	for refused := false; ; {
		if k, ok := c.keyNow(); ok {
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

// presentEpoch is what an engine that refuses to attach tells of the session's
// epoch; 0 if err is no such refusal.
func presentEpoch(err error) uint64 {
	var e *Error
	if errors.As(err, &e) && e.Err == ErrSession {
		return e.Epoch
	}
	return 0
}

// attach attaches the session, naming all claims that are still wanted, those
// in flight included. It is called with c.mu held and returns without it; mine
// is closed when it is done.
func (c *Client) attach(ctx context.Context, mine chan struct{}) (Key, error) {
	s := c.session
	s.Epoch = c.epoch
	named := make([]*claim, 0, len(c.claims))
	for id, cl := range c.claims {
		s.Named = append(s.Named, id)
		named = append(named, cl)
	}
	slices.Sort(s.Named)
	s.Lapsed = c.lapses()
	dropped := make([]uint64, 0, len(c.todo))
	for id, cl := range c.todo {
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
		epoch = lease.Key.Epoch // also if nothing comes of it here
	}
	if err == nil && again {
		err = c.audit(ctx, s.Named, lease.Claims)
	}

	c.mu.Lock()
	if err == nil && c.closed {
		c.mu.Unlock()
		c.leave(lease.Key, nil) // Close waits for this
		c.mu.Lock()
		err = errClosed
	}
	c.attaching = nil
	close(mine)
	if epoch != 0 {
		c.epoch = epoch
	}
	if err != nil {
		c.fail(err)
		c.unlock()
		return Key{}, err
	}
	c.settle(c.clock()) // what was lost meanwhile stays lost
	c.resumes = true
	for _, cl := range named {
		cl.epoch = lease.Key.Epoch
	}
	c.recount()
	c.key.Store(&lease.Key)
	for _, id := range dropped {
		delete(c.todo, id) // it lapsed, or the engine ended it as not named; later news of it is refused
	}
	c.renewed(lease, sent)
	k, _ := c.keyNow()
	c.unlock()
	return k, nil
}

// audit finds out what became of named claims of which the answer to Attach says
// nothing: an engine that lost its memory knows none of them. A hold that is gone
// is lost before the new lease counts for it; a waiting claim is asked for anew.
func (c *Client) audit(ctx context.Context, named []uint64, said []Status) error {
	told := make(map[uint64]bool, len(said))
	for i := range said {
		told[said[i].Ref.ID] = true
	}
	if !slices.ContainsFunc(named, func(id uint64) bool { return !told[id] }) {
		return nil
	}
	var found []Status
	for s, err := range c.engine.List(ctx, Query{Session: c.session.ID, Brief: true}) {
		if errors.Is(err, ErrUnsupported) {
			break // then what the lease does not vouch for is taken for gone
		}
		if err != nil {
			return err
		}
		if s.Ref.Session == c.session.ID && !told[s.Ref.ID] {
			told[s.Ref.ID] = true
			found = append(found, s)
		}
	}
	c.mu.Lock()
	defer c.unlock()
	for _, id := range named {
		cl := c.claims[id]
		if cl == nil || told[id] {
			continue
		}
		switch cl.phase {
		case granted:
			c.drop(cl, lost(cl, EngineRestarted, ""), false)
		case inLine:
			cl.resend, cl.known, cl.toldBy = true, false, 0 // the engine counts its changes anew
			c.todo[id] = cl
			c.kick()
		}
	}
	for i := range found {
		if cl := c.claims[found[i].Ref.ID]; cl != nil {
			c.learn(cl, &found[i], byHint)
		}
	}
	return nil
}

// renewed takes in a lease that was asked for at that time.
func (c *Client) renewed(lease Lease, sent time.Duration) {
	c.alive, c.failures, c.failure, c.retries = true, 0, nil, 0
	c.ttl = lease.TTL
	c.good, c.endsAt = max(c.good, sent), lease.EndsAt
	c.owed = max(c.owed-1, 0)
	if c.ttl > 0 {
		third := c.ttl / 3
		c.renewAt = sent + third - rand.N(third/10) // never later than a third
		c.kick()
	}
	for i := range lease.Claims {
		s := &lease.Claims[i]
		if cl := c.find(s.Ref); cl != nil {
			if c.learn(cl, s, sent) {
				c.owed = max(c.owed, 1)
			}
		} else {
			c.disown(s)
		}
	}
	c.heard.Store(lease.Number)
	c.payOwed()
	if len(c.claims) > 0 {
		c.guard()
	}
}

// payOwed renews soon if the engine is still to be told that a new end was heard
// here: until then it must reckon with a holder that knows nothing of it (R12). An
// end that a lease told is known when the next call has stated that lease; one that
// the answer to a claim told, when a lease has told it too.
func (c *Client) payOwed() {
	if c.heard.Load() == 0 {
		c.owed = 0 // the engine does not ask
	}
	if c.owed > 0 {
		c.renewSoon = true
		c.kick()
	}
}

// disown ends a claim of the session that nobody here knows: one that arrived at
// the engine again, after its end had been forgotten there.
func (c *Client) disown(s *Status) {
	live := (s.State == Waiting || s.State == Held) && !s.Lapsed
	if s.Ref.Session != c.session.ID || !live || c.closed || c.session.TTL == 0 {
		return
	}
	cl := &claim{client: c, op: "release", id: s.Ref.ID, phase: over, sent: true, answered: true}
	cl.first.claim = cl
	c.todo[cl.id] = cl
	c.kick()
}

// find is the claim that ref names, if this client still has to do with it.
func (c *Client) find(ref Ref) *claim {
	if ref.Session != c.session.ID {
		return nil
	}
	if cl := c.claims[ref.ID]; cl != nil {
		return cl
	}
	return c.todo[ref.ID]
}

// notify takes in hints of the engine. None at all says that some were missed.
func (c *Client) notify(statuses []Status) {
	c.mu.Lock()
	if len(statuses) == 0 && c.ttl > 0 && c.alive {
		c.renewSoon = true
		c.kick()
	}
	for i := range statuses {
		s := &statuses[i]
		if cl := c.find(s.Ref); cl == nil {
			c.disown(s)
		} else if c.ttl == 0 || c.alive { // else no lease stands behind it: the next attach tells
			c.learn(cl, s, byHint)
		}
	}
	c.unlock()
}

// detach notes that the engine refused the key k. Holds live on until their
// deadline; the next call attaches again.
func (c *Client) detach(k Key) {
	c.mu.Lock()
	if c.holdsKey(k) {
		c.key.Store(nil)
		c.kick()
	}
	c.unlock()
}

// lapses returns the lapses of claims that the client still has to end at the engine, sorted by
// reason and end.
func (c *Client) lapses() (all []Lapse) {
	for _, cl := range c.todo {
		if cl.phase == over && cl.lapse.Reason != NoReason {
			all = append(all, cl.lapse)
		}
	}
	slices.SortFunc(all, func(a, b Lapse) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.EndsAt, b.EndsAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// leave ends the session k at the engine, within a bound. It first reports each lapse, once, so
// that the claim ends for the reason of its lapse.
func (c *Client) leave(k Key, lapsed []Lapse) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.closeBound())
	defer cancel()
	for _, l := range lapsed {
		if c.engine.End(ctx, k, Ending{Kind: Lapsed, Lapse: l}) != nil {
			break // leaving is more urgent
		}
	}
	for try := 0; ; try++ {
		err := c.engine.End(ctx, k, Ending{Kind: Leave})
		if err == nil || errors.Is(err, ErrSession) {
			return nil
		}
		if isRefusal(err) {
			return err
		}
		timer := time.NewTimer(backoff(try))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unavailable(err, ctx)
		}
	}
}

// unlock unlocks c.mu, and then ends the contexts of the holds that have ended:
// that may run code of the program, which must not find c.mu locked.
func (c *Client) unlock() {
	ended := c.ended
	c.ended = nil
	c.mu.Unlock()
	for _, cancel := range ended {
		cancel()
	}
}
