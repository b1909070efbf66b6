package lockkeeper

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/deadlines"
)

// A Client takes locks of any [Engine] for a program. It has one session, which its first use
// attaches. It waits for grants, renews the session, ends a lost hold before another claim can be
// granted, releases a grant whose caller has gone, repeats calls without an answer, and counts the
// handles of a hold.
//
// It is safe for concurrent use. One goroutine serves a client, and another one at times, however many
// claims it has; a waiting claim needs none.
//
// Errors are [*Error]. ErrNotAcquired means taken. ErrUnavailable means that the engine could not
// be reached, or that the outcome is unknown; the client then releases what may be left, in the
// background.
type Client struct {
	engine      Engine
	guarantees  Guarantees
	keepsEngine bool           // Close leaves the engine open
	prompt      bool           // the engine answers out of memory: its calls don't hang
	outages     OutageReporter // the engine, if it is one; else nil
	session     Session        // without Named and Epoch
	clock       func() time.Duration
	logger      *slog.Logger
	wrong       error                       // the error of invalid options, which every call returns
	key         atomic.Pointer[Key]         // nil: not attached; changed with mu held
	lowestOpen  atomic.Uint64               // Key.LowestOpen; changed with mu held
	acked       atomic.Uint64               // Key.Acked; changed with mu held
	granter     SlotGranter                 // the engine, if the session may have slots; else nil
	slots       atomic.Pointer[openedSlots] // of plain locks; nil: none
	ids         atomic.Uint64               // the highest id so far
	life        context.Context             // of the background calls; ends with Close
	quit        context.CancelFunc
	wakeup      chan struct{} // wakes the goroutine
	stopped     chan struct{} // closed when the goroutine has ended
	left        chan struct{} // closed when Close is done

	mu         sync.Mutex          // guards the fields below and every claim; never held during a call of the engine
	claims     map[uint64]*claim   // the claims that a caller still wants
	unfinished map[uint64]*claim   // claims that the goroutine must send again or end
	freezing   map[uint64]bool     // freezes in flight
	ends       map[*claim]struct{} // holds with an end of their own
	ended      []func()            // contexts to end after unlocking
	records    []record            // to log, at most maxRecords
	logging    bool                // a goroutine is writing records
	attaching  chan struct{}       // closed when the Attach in flight is answered
	resumes    bool                // the session was attached before
	unleft     *Key                // of an Attach that was answered after Close began: Close leaves by it
	epoch      uint64              // the latest epoch that the engine stated; 0: none
	closed     bool
	running    bool // the goroutine has begun

	lease          deadlines.Session
	endsAt         time.Duration // the end of the session as the last lease stated it, in engine time
	ranAt          time.Duration // when this process last ran, as far as the client knows
	failures       int           // failed renewals and attaches since the latest lease
	failure        error         // the latest of them
	quorumLost     bool          // too few nodes of the engine were the cause of that
	renewing       bool          // a Renew is in flight
	renewSoon      bool          // renew as soon as possible
	ackRenewals    int           // renewals that are still needed to acknowledge an end
	retryAt        time.Duration // no renewal starts earlier
	retries        int
	finishing      bool          // a goroutine works on an unfinished claim
	finishAt       time.Duration // no work on an unfinished claim starts earlier
	finishFailures int           // failures of that work in a row
	ticker         *time.Timer
	armed          bool
	tickAt         time.Duration
}

var errClosed error = &Error{Err: ErrInvalid, Detail: "the client is closed"}

// New returns a client of e. [Client.Close] closes e too, unless [SharedEngine] is given. New does
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
	c.outages, _ = e.(OutageReporter)
	if c.guarantees.NoExpiry {
		c.session.TTL = 0
	}
	for _, option := range options {
		option(c)
	}
	c.wrong = c.session.Check(c.guarantees.NoExpiry)
	if g, ok := e.(SlotGranter); ok && c.wrong == nil && c.session.TTL == 0 && c.prompt {
		c.granter = g
	}
	c.life, c.quit = context.WithCancel(context.Background())
	return c
}

// Guarantees returns what the engine declares of itself.
func (c *Client) Guarantees() Guarantees { return c.guarantees }

// Lock waits until it holds the path, with all paths below it, exclusively. The context bounds the
// wait only, never the hold. If the context ends first, the client ends the claim, releases a grant
// that arrives at that moment, and returns when the engine has confirmed the end. The error then
// matches ErrNotAcquired and the context's, and the claim no longer blocks anybody. If the engine
// does not answer within a second, the outcome is unknown: the error matches ErrUnavailable and the
// context's, and the client goes on ending the claim in the background.
//
// Inside the [Hold.Context] of a hold that covers the path, Lock returns at once with another
// handle of that hold.
func (c *Client) Lock(ctx context.Context, path string, more ...Request) (*Hold, error) {
	if len(more) == 0 {
		if h, err := c.takePlain(ctx, "lock", path, Forever); h != nil || err != nil {
			return h, err
		}
	}
	cl := c.newClaim("lock")
	cl.target(path, Target{Mode: ModeExclusive})
	return c.acquire(ctx, cl, more)
}

// TryLock takes the path exclusively at once, or fails with ErrNotAcquired and names the holder. It
// never waits for a lock, whatever the requests say. To try shared or permits targets, call
// [Client.Acquire] with [WithWait](0).
func (c *Client) TryLock(ctx context.Context, path string, more ...Request) (*Hold, error) {
	if len(more) == 0 {
		if h, err := c.takePlain(ctx, "try lock", path, 0); h != nil || err != nil {
			return h, err
		}
	}
	cl := c.newClaim("try lock")
	cl.target(path, Target{Mode: ModeExclusive})
	cl.add(more)
	WithWait(0)(&cl.demand)
	return c.acquire(ctx, cl, nil)
}

// Acquire waits, as Lock does, until it holds all targets of the requests. The engine grants all of
// them at once or none, so such claims can't deadlock (R6).
func (c *Client) Acquire(ctx context.Context, requests ...Request) (*Hold, error) {
	return c.acquire(ctx, c.newClaim("acquire"), requests)
}

// Do calls fn while it holds the path exclusively. The context of fn ends when ctx ends or the hold
// is lost, with the cause. Do returns the error of fn; if fn returned nil although the hold was
// lost, it returns an ErrLost. It releases the path also if fn panics or ends its goroutine.
func (c *Client) Do(ctx context.Context, path string, fn func(context.Context) error, more ...Request) (err error) {
	cl := c.newClaim("do")
	cl.target(path, Target{Mode: ModeExclusive})
	h, err := c.acquire(ctx, cl, more)
	if err != nil {
		return err
	}
	h.tied = true
	defer func() {
		// A release that fails is no failure of fn: the client repeats it in the background.
		if closed := h.Close(); err == nil && errors.Is(closed, ErrLost) {
			err = closed
		}
	}()
	return fn(h.Context())
}

// List yields the claims that q selects: holds, then waiting claims in order, then freezes. With
// q.Follow it goes on with every change until ctx ends.
func (c *Client) List(ctx context.Context, q Query) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := c.usable("list", q.Meets); err != nil {
			yield(Status{}, err)
			return
		}
		if err := c.guarantees.RefuseWithout(FeatureList); err != nil {
			yield(Status{}, wrap("list", q.Meets, err))
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

// Revoke, for operators, asks the holder of ref to yield, and ends the hold after the TTL of
// the holder's session. With force it ends the hold at once. It always ends a waiting claim at once (R18).
func (c *Client) Revoke(ctx context.Context, ref Ref, force bool, by Label) error {
	return c.operate(ctx, "revoke", "", Ending{Kind: Revoke, Ref: ref, Force: force, Label: by})
}

// Freeze, for operators, forbids new grants on the path and below it for d, or until [Client.Thaw];
// on [Root], everywhere. Holders keep what they hold (R18).
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

// beginFreeze returns the id of a freeze that is about to be sent.
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

// freezeAnswered records that the client does not send the freeze again.
func (c *Client) freezeAnswered(id uint64) {
	c.mu.Lock()
	defer c.unlock()
	delete(c.freezing, id)
	c.raiseLowestOpen()
}

// Thaw, for operators, ends the freeze of the path; ErrNotHeld if there is none. The label is for the audit
// log of a server. If the client had to repeat the request because its answer was lost, Thaw returns nil
// also if there is none then (R18).
func (c *Client) Thaw(ctx context.Context, path string, by Label) error {
	p, err := parseFreezable(path)
	if err != nil {
		return wrap("thaw", "", err)
	}
	return c.operate(ctx, "thaw", p, Ending{Kind: Thaw, Path: p, Label: by})
}

func (c *Client) operate(ctx context.Context, op string, path Path, e Ending) error {
	if err := c.usable(op, path); err != nil {
		return err
	}
	if err := cmp.Or(e.Check(), c.guarantees.RefuseEnding(&e)); err != nil {
		return wrap(op, path, err)
	}
	sent := false // an earlier request may have arrived: its answer is missing
	err := c.call(ctx, c.retryBound(), func(ctx context.Context, k Key) error {
		err := c.engine.End(ctx, k, e)
		if e.Kind == Thaw && sent && errors.Is(err, ErrNotHeld) {
			return nil
		}
		sent = sent || err != nil && !isRefusal(err) && !errors.Is(err, ErrSession)
		return err
	})
	if err != nil {
		return wrap(op, path, err)
	}
	return nil
}

// usable returns what is wrong with the client, if anything is.
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

// retryBound is how long the client tries to reach the engine: by then the session has ended, with
// the claims that wait.
func (c *Client) retryBound() time.Duration {
	if c.session.TTL == 0 {
		return DefaultTTL
	}
	return c.session.TTL
}
