package grab

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// How often something is looked at behind its timer, which stands still while
// the computer sleeps, and how soon what failed is tried again; how much later
// than it would this process must have come to it to have stood still; and how
// long to ask for why something ended.
const (
	tick    = time.Second
	retry   = time.Second
	stall   = 100 * time.Millisecond
	inquiry = 2 * time.Second
)

// Keeping refreshes a place or a hold until it is stopped or the thing is gone.
// It ends by its own clock, before anyone else can be granted: so many seconds
// after the last refresh that was answered was sent (R12). It is safe for
// concurrent use.
type Keeping struct {
	places *Places
	name   Name
	terms  Terms
	clock  func() time.Duration
	quit   context.CancelFunc
	done   chan struct{} // it is gone
	ran    chan struct{} // its goroutine has ended
	news   chan struct{} // has one when the answer has changed

	mu       sync.Mutex // guards all below
	answer   Answer
	deadline time.Duration
	told     lockkeeper.Status // its end, as a follower heard it
	failed   error             // of the latest refresh, if it was not answered
	awake    time.Duration     // run looks at the clock by then, if this process does not stand still
	err      error
}

// Keep refreshes what the name has, place or hold, and never queues anew. If it
// has nothing the error is an ErrLost, as that of [Places.Renew]. clock must go on while the
// computer sleeps, or what is kept may be over before it is known. Stop it in the end.
func (p *Places) Keep(ctx context.Context, n Name, terms Terms, clock func() time.Duration) (*Keeping, error) {
	sent := clock()
	a, err := p.Renew(ctx, n, terms)
	if err != nil {
		return nil, n.wrap("keep", err)
	}
	return p.keep(n, terms, clock, a, sent), nil
}

// keep goes on with what answer a said, which was asked for at sent.
func (p *Places) keep(n Name, terms Terms, clock func() time.Duration, a Answer, sent time.Duration) *Keeping {
	ctx, quit := context.WithCancel(context.Background())
	k := &Keeping{
		places: p, name: n, terms: terms, clock: clock, quit: quit,
		done: make(chan struct{}), ran: make(chan struct{}), news: make(chan struct{}, 1), awake: clock() + tick,
	}
	k.set(a, sent)
	events := make(chan lockkeeper.Status, 1)
	followed := make(chan struct{})
	go func() { defer close(followed); p.follow(ctx, n, events) }()
	go func() {
		defer close(k.ran)
		k.run(ctx, events, sent)
		quit()
		<-followed
	}()
	return k
}

// Stop ends the refreshing. What is kept lives on until its TTL has passed.
func (k *Keeping) Stop() {
	k.quit()
	<-k.ran
}

// Release stops the refreshing and gives back what was kept, and returns how many
// that were: 0 if it is gone. What the name has grabbed since it leaves alone.
func (k *Keeping) Release(ctx context.Context) (int, error) {
	k.Stop()
	return k.places.release(ctx, k.name, k.Answer().Ticket)
}

// Done is closed when what was kept is gone, or may be: before anyone else can
// be granted. Stop does not close it.
func (k *Keeping) Done() <-chan struct{} { return k.done }

// Err says why it is gone: an ErrLost with the reason, which is Released,
// Yielded or Cancelled if its own name gave it back; nil as long as it is there.
func (k *Keeping) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil && k.clock() >= k.deadline {
		return k.late()
	}
	return k.err
}

// Why is Err, but asks the engine where this process does not know more than that
// it was not refreshed in time. It may take two seconds.
func (k *Keeping) Why(ctx context.Context) error {
	err := k.Err()
	switch {
	case errors.Is(err, lockkeeper.Suspended), errors.Is(err, lockkeeper.Unreachable), errors.Is(err, lockkeeper.Expired):
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, inquiry)
	defer cancel()
	st, failed := k.places.session(k.name).Look(ctx)
	if failed != nil || !k.isEnd(st) || st.Reason == lockkeeper.Expired {
		return err // which says also why it expired
	}
	return k.name.wrap("keep", k.name.nothing(st))
}

// isEnd reports whether st is the end of what is kept, and not of something that
// the name had before or since.
func (k *Keeping) isEnd(st lockkeeper.Status) bool {
	a := k.Answer()
	return st.State == lockkeeper.Ended && st.Change > a.Change && (a.State == lockkeeper.Waiting || st.Fence == a.Fence)
}

// Answer is what the name has, as it was told last.
func (k *Keeping) Answer() Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answer
}

// News has an element when the answer has changed since it was read last.
func (k *Keeping) News() <-chan struct{} { return k.news }

// Remaining is for how long it is there for sure if no refresh is answered.
func (k *Keeping) Remaining() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, k.deadline-k.clock())
}

// set notes an answer of what was asked for at sent.
func (k *Keeping) set(a Answer, sent time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer, k.told, k.failed = a, lockkeeper.Status{}, nil
	end := a.TTL
	if a.Asked != nil {
		end = min(end, a.Asked.Left)
	}
	// Less a margin, as every holder's own deadline (R12).
	k.deadline = sent + end - end/100 - 10*time.Millisecond
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// next is how long after a refresh the next one is due: a third of the TTL, or
// up to a fifth of that sooner, so that many don't come at once.
func (k *Keeping) next() time.Duration {
	third := k.terms.ttl() / 3
	return third - rand.N(third/5)
}

// sleeps notes that run looks at the clock within d; Forever if it never does.
// After the deadline it leaves what may tell why that was missed.
func (k *Keeping) sleeps(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.clock(); now < k.deadline {
		k.awake = now + min(d, lockkeeper.Forever-now)
	}
}

// run refreshes until ctx ends or it is gone.
func (k *Keeping) run(ctx context.Context, events <-chan lockkeeper.Status, sent time.Duration) {
	defer k.sleeps(lockkeeper.Forever)
	due := sent + k.next()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(min(tick, max(0, due-k.clock()), k.Remaining()))
		k.sleeps(tick)
		refresh := false
		select {
		case <-ctx.Done():
			return
		case st := <-events:
			refresh = k.hear(st)
		case <-timer.C:
		}
		now := k.clock()
		if k.Remaining() == 0 {
			k.end(k.Err())
			return
		}
		if !refresh && now < due {
			continue
		}
		a, err := k.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case k.Remaining() == 0: // whatever the answer says: by now somebody may have been told
			k.fails(err)
			k.end(k.Err())
			return
		case err == nil && a.Ticket == k.Answer().Ticket:
			k.set(a, now)
			due = now + k.next()
		case err == nil:
			k.end(k.replaced())
			return
		case errors.Is(err, lockkeeper.ErrUnavailable):
			k.fails(err)
			due = k.clock() + retry
		default:
			k.end(k.why(err))
			return
		}
	}
}

// renew is one refresh. It ends with what is left of the lease.
func (k *Keeping) renew(ctx context.Context) (Answer, error) {
	bound := min(solo.RoundTrip, k.Remaining())
	k.sleeps(bound)
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return k.places.Renew(ctx, k.name, k.terms)
}

// fails notes a refresh that was not answered, unless it was this process that
// stood still.
func (k *Keeping) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil || k.clock() <= k.awake+stall {
		k.failed = err
	}
}

// hear notes what a follower was told, and reports whether the engine has to be
// asked for the truth.
func (k *Keeping) hear(st lockkeeper.Status) (ask bool) {
	ended := k.isEnd(st)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ended:
		k.told = st
		return true
	case st.State != k.answer.State || st.Ticket != k.answer.Ticket || st.Change != k.answer.Change:
		return true // also if who asks for it is another one: the end may be another too
	}
	k.answer.Status = st // its place, and who is in the way
	select {
	case k.news <- struct{}{}:
	default:
	}
	return false
}

// why completes the error of a refresh that found nothing.
func (k *Keeping) why(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost || e.Reason != lockkeeper.NoReason {
		return k.name.wrap("keep", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	lost := k.gone()
	// Its session can't have ended by itself before the deadline: somebody left it.
	switch {
	case lost.Reason != lockkeeper.NoReason:
	case k.clock() >= k.deadline:
		lost.Reason = lockkeeper.Expired
	case k.answer.State == lockkeeper.Waiting:
		lost.Reason = lockkeeper.Cancelled
	default:
		lost.Reason = lockkeeper.Released
	}
	return lost
}

// replaced is the error when the name has something else by now.
func (k *Keeping) replaced() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.gone()
	e.Detail = k.name.As + " has grabbed it anew since"
	return e
}

// gone is the error of what has ended, with the reason if a follower heard it. It
// is called with k.mu held.
func (k *Keeping) gone() *lockkeeper.Error {
	return &lockkeeper.Error{
		Op:     "keep",
		Path:   k.name.what(),
		Err:    lockkeeper.ErrLost,
		Reason: k.told.Reason,
		Detail: k.told.Text,
	}
}

// late is the error of what was not refreshed before its deadline, as far as is
// known here. It is called with k.mu held.
func (k *Keeping) late() error {
	e := k.gone()
	asked := k.answer.Asked
	switch {
	case e.Reason != lockkeeper.NoReason:
		return e
	case asked != nil && asked.Left < k.answer.TTL: // no refresh could have moved that end
		e.Reason = asked.Reason
		if asked.Reason == lockkeeper.Revoked {
			e.Detail = asked.Words()
		}
		return e
	case k.failed != nil:
		e.Reason, e.Cause = lockkeeper.Unreachable, k.failed
	case k.awake != lockkeeper.Forever && k.clock() > k.awake+stall:
		e.Reason = lockkeeper.Suspended
	default:
		e.Reason = lockkeeper.Expired
	}
	if k.answer.State == lockkeeper.Waiting {
		e.Detail = "it was only a place in line"
	}
	return e
}

// end notes why it is gone.
func (k *Keeping) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
		close(k.done)
	}
}

// follow sends what becomes of n's claim until ctx ends. It only wakes: what it
// misses, the next refresh tells.
func (p *Places) follow(ctx context.Context, n Name, to chan<- lockkeeper.Status) {
	for ctx.Err() == nil {
		for st, err := range p.engine.List(ctx, lockkeeper.Query{Ref: n.Ref(), Follow: true}) {
			if err != nil {
				break
			}
			select {
			case to <- st:
			case <-ctx.Done():
			}
		}
		if solo.Pause(ctx, retry) != nil {
			return
		}
	}
}
