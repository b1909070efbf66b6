package lockkeeper

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Client is what programs use: it stands on any [Engine] and does what is the
// same everywhere. It has one session, attached with the first use. It waits,
// renews the session, tells holders of a loss before anybody else is granted,
// gives back what arrives when nobody waits for it any more, repeats what was
// not answered, and counts re-entrance.
//
// It is safe for concurrent use. One goroutine serves a client, however much it
// holds; a waiting claim costs none.
//
// Errors are [*Error]: ErrNotAcquired is taken, ErrUnavailable is an engine that
// could not be reached, or an outcome that is not known; whatever is left behind
// by that is released in the background.
type Client struct {
	engine      Engine
	guarantees  Guarantees
	keepsEngine bool    // Close leaves the engine open
	prompt      bool    // the engine answers out of memory: its calls don't hang
	session     Session // without Named and Epoch
	clock       func() time.Duration
	logger      *slog.Logger
	wrong       error               // what the options have wrong, answered to every call
	key         atomic.Pointer[Key] // nil: not attached; changed with mu held
	lowestOpen  atomic.Uint64       // no claim below it is begun any more; changed with mu held
	acked       atomic.Uint64       // the number of the latest lease that was taken in; changed with mu held
	life        context.Context     // of the background calls; ends with Close
	quit        context.CancelFunc
	wakeup      chan struct{} // wakes the goroutine
	stopped     chan struct{} // closed when the goroutine has ended
	left        chan struct{} // closed when Close is done

	mu         sync.Mutex          // guards all below, and every claim; no call of the engine is made with it
	claims     map[uint64]*claim   // all that are still wanted
	unfinished map[uint64]*claim   // what must be sent again, or ended, in the background
	ids        uint64              // the last that was given
	freezing   map[uint64]bool     // freezes that are out
	ends       map[*claim]struct{} // holds with an end of their own
	ended      []func()            // contexts to end after unlocking
	attaching  chan struct{}       // closed when the Attach that is out is answered
	resumes    bool                // it was attached before
	epoch      uint64              // the last that the engine told of the session; 0: none
	closed     bool
	running    bool // the goroutine has begun

	alive          bool          // a lease has been had, and its deadline has not been seen to pass
	ttl            time.Duration // as the last lease stated it
	sentAt         time.Duration // when the last good Attach or Renew was sent
	endsAt         time.Duration // the end of the session as the last lease stated it, in engine time
	lapsedAt       time.Duration // when the deadline was seen to have passed
	ranAt          time.Duration // when this process was last seen to run
	failures       int           // renewals that failed since
	failure        error         // the latest of them
	renewing       bool          // a Renew is out
	renewAt        time.Duration
	renewSoon      bool          // renew as soon as possible
	ackRenewals    int           // so many renewals let the engine know that a new end was heard
	retryAt        time.Duration // no renewal before
	retries        int
	finishAt       time.Duration // nothing is mended before
	finishFailures int           // failures of it in a row
	ticker         *time.Timer
	armed          bool
	tickAt         time.Duration
}

var errClosed error = &Error{Err: ErrInvalid, Detail: "the client is closed"}

// New makes a client of e. [Client.Close] closes e too, unless [SharedEngine] is given. New does
// not call e: the first use attaches the session, and reports invalid options.
func New(e Engine, options ...ClientOption) *Client {
	c := &Client{
		engine:     e,
		guarantees: e.Guarantees(),
		session:    Session{ID: randomSessionID(), TTL: DefaultTTL},
		clock:      NewBootClock(),
		logger:     slog.New(slog.DiscardHandler),
		wakeup:     make(chan struct{}, 1),
		stopped:    make(chan struct{}),
		left:       make(chan struct{}),
		claims:     make(map[uint64]*claim),
		unfinished: make(map[uint64]*claim),
		ends:       make(map[*claim]struct{}),
	}
	c.prompt = c.guarantees.Prompt
	if c.guarantees.NoExpiry {
		c.session.TTL = 0
	}
	for _, option := range options {
		option(c)
	}
	c.wrong = c.session.Check(c.guarantees.NoExpiry)
	c.life, c.quit = context.WithCancel(context.Background())
	return c
}

// Guarantees is what the engine claims.
func (c *Client) Guarantees() Guarantees { return c.guarantees }

// Lock waits until it holds the path exclusively, with all below it. The context
// bounds the wait only, never the hold. If the context ends first, the client ends the
// claim, releases a grant that arrives at that moment, and returns when the engine has
// confirmed the end. The error then matches ErrNotAcquired and the context's, and the
// claim no longer blocks anybody. If the engine does not answer within a second, the
// outcome is unknown: the error matches ErrUnavailable and the context's, and the
// client goes on ending the claim in the background.
//
// Inside the [Hold.Context] of a hold that covers the path it returns at once with
// another handle of that hold.
func (c *Client) Lock(ctx context.Context, path string, more ...Request) (*Hold, error) {
	cl := c.newClaim("lock")
	cl.target(path, Target{Mode: ModeExclusive})
	return c.acquire(ctx, cl, more)
}

// TryLock holds the path exclusively at once, or fails with ErrNotAcquired and
// who has it. It never waits for a lock, whatever is asked with it. To try shared or
// permits targets, call [Client.Acquire] with [WithWait](0).
func (c *Client) TryLock(ctx context.Context, path string, more ...Request) (*Hold, error) {
	cl := c.newClaim("try lock")
	cl.target(path, Target{Mode: ModeExclusive})
	cl.add(more)
	WithWait(0)(&cl.demand)
	return c.acquire(ctx, cl, nil)
}

// Acquire waits until it holds everything that is asked for, as Lock does: all of
// it at once, or nothing, so that such claims can't deadlock (R6).
func (c *Client) Acquire(ctx context.Context, requests ...Request) (*Hold, error) {
	return c.acquire(ctx, c.newClaim("acquire"), requests)
}

// Do calls fn while it holds the path exclusively. The context of fn ends with
// ctx, and when the hold is lost, with the cause. It returns the error of fn; if
// that is nil although the hold was lost, an ErrLost. It releases also if fn
// panics or ends its goroutine.
func (c *Client) Do(ctx context.Context, path string, fn func(context.Context) error, more ...Request) (err error) {
	cl := c.newClaim("do")
	cl.target(path, Target{Mode: ModeExclusive})
	h, err := c.acquire(ctx, cl, more)
	if err != nil {
		return err
	}
	h.tied = true
	defer func() {
		// The release alone failing is no failure of what was done under the
		// lock: it goes on in the background.
		if closed := h.Close(); err == nil && errors.Is(closed, ErrLost) {
			err = closed
		}
	}()
	return fn(h.Context())
}

// List yields what q selects, holds first, then who waits in line, then freezes.
// With q.Follow it goes on with every change until ctx ends.
func (c *Client) List(ctx context.Context, q Query) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := c.usable("list", q.Meets); err != nil {
			yield(Status{}, err)
			return
		}
		if q.Meets != "" {
			p, err := ParsePath(string(q.Meets))
			if err != nil {
				yield(Status{}, wrap("list", "", err))
				return
			}
			q.Meets = p
		}
		for s, err := range c.engine.List(ctx, q) {
			if err != nil {
				err = wrap("list", q.Meets, err)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// Revoke, by an operator, asks the holder of ref to yield and takes the hold
// after its TTL; with force, and for a waiting claim, at once (R18).
func (c *Client) Revoke(ctx context.Context, ref Ref, force bool, by Label) error {
	return c.operate(ctx, "revoke", "", Ending{Kind: Revoke, Ref: ref, Force: force, Label: by})
}

// Freeze, by an operator, forbids new grants on the path and below it for d, or
// until [Client.Thaw]; on [Root], everywhere. Present holders don't feel it (R18).
func (c *Client) Freeze(ctx context.Context, path string, d time.Duration, by Label) error {
	at, err := parseFreezable(path)
	if err != nil {
		return wrap("freeze", "", err)
	}
	f := demand{want: Want{Targets: []Target{{Path: at, Mode: ModeExclusive}}}}
	f.want.ID, f.want.Freeze, f.want.Label = checkedID, d, by
	err = f.check()
	if err == nil && d == 0 {
		err = Invalid("freeze for 0s: say for how long")
	}
	if err == nil {
		err = c.guarantees.Refuse(&f.want)
	}
	if err != nil {
		return wrap("freeze", "", err)
	}
	if err := c.usable("freeze", at); err != nil {
		return err
	}
	f.want.ID = c.beginFreeze()
	defer c.freezeAnswered(f.want.ID)
	err = c.call(ctx, c.retryBound(), func(ctx context.Context, k Key) error {
		_, err := c.engine.Claim(ctx, k, f.want)
		return err
	})
	if err != nil {
		return wrap("freeze", at, err)
	}
	return nil
}

// beginFreeze gives the id of a freeze that is about to be sent.
func (c *Client) beginFreeze() uint64 {
	c.mu.Lock()
	defer c.unlock()
	id := c.nextID()
	if c.freezing == nil {
		c.freezing = make(map[uint64]bool)
	}
	c.freezing[id] = true
	return id
}

// freezeAnswered notes that a freeze is sent no more.
func (c *Client) freezeAnswered(id uint64) {
	c.mu.Lock()
	defer c.unlock()
	delete(c.freezing, id)
	c.raiseLowestOpen()
}

// Thaw ends the freeze of the path; ErrNotHeld if there is none.
func (c *Client) Thaw(ctx context.Context, path string) error {
	p, err := parseFreezable(path)
	if err != nil {
		return wrap("thaw", "", err)
	}
	return c.operate(ctx, "thaw", p, Ending{Kind: Thaw, Path: p})
}

func (c *Client) operate(ctx context.Context, op string, path Path, e Ending) error {
	if err := c.usable(op, path); err != nil {
		return err
	}
	if c.guarantees.Features&FeatureOperator == 0 {
		return wrap(op, path, &Error{Err: ErrUnsupported,
			Detail: c.guarantees.Name + " does not claim: " + FeatureOperator.String()})
	}
	err := c.call(ctx, c.retryBound(), func(ctx context.Context, k Key) error { return c.engine.End(ctx, k, e) })
	if err != nil {
		return wrap(op, path, err)
	}
	return nil
}

// usable says what is wrong with the client, if anything is.
func (c *Client) usable(op string, path Path) error {
	if c.wrong != nil {
		return wrap(op, path, c.wrong)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return wrap(op, path, errClosed)
	}
	return nil
}

// patience is for how long an engine that can't be reached is tried: by then
// the session is over, and a place in line lost.
func (c *Client) retryBound() time.Duration {
	if c.session.TTL == 0 {
		return DefaultTTL
	}
	return c.session.TTL
}

// closeBound bounds calls that have no context of their own.
func (c *Client) closeBound() time.Duration { return min(5*time.Second, c.retryBound()) }

// Close leaves the session and closes the engine, unless [SharedEngine] was given. All that
// it holds is released and its contexts end with the reason Released; all that waits fails
// with the reason Cancelled; every later call is refused. It returns when the goroutine
// of the client has ended and the engine has acknowledged, or after 5 s, or the
// TTL if that is shorter, with an ErrUnavailable: then the session ends with its
// TTL. A second Close waits for the first, and is nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.left
		return nil
	}
	c.closed = true
	defer close(c.left)
	if c.ticker != nil {
		c.ticker.Stop()
	}
	for _, cl := range c.claims {
		if cl.phase == granted {
			cl.first.finish(handleReleased)
			for _, h := range cl.more {
				h.finish(handleReleased)
			}
		}
		why := cl.refused(Cancelled, nil)
		why.Detail = "the client is closed"
		c.endClaim(cl, why, false)
	}
	lapsed := c.lapses()
	clear(c.unfinished)
	running, attaching := c.running, c.attaching
	c.quit()
	c.unlock()
	if running {
		<-c.stopped
	}
	if attaching != nil {
		// Whoever attaches finds the client closed, and leaves. It is bounded
		// as every call of the engine is.
		<-attaching
	}
	var left error
	if k := c.key.Swap(nil); k != nil {
		left = c.leave(*k, lapsed)
	}
	if !c.keepsEngine {
		if err := c.engine.Close(); err != nil && left == nil {
			left = err
		}
	}
	if left != nil {
		return wrap("close", "", left)
	}
	return nil
}
