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

const (
	tick    = time.Second            // the longest pause: timers stand still while the computer sleeps
	retry   = time.Second            // after a renewal or a List that failed
	stall   = 100 * time.Millisecond // a process that wakes later than planned by more was suspended
	inquiry = 2 * time.Second        // bound of the query for a reason
)

// A Keepalive renews a reservation until the caller stops it or the reservation has ended. By its
// own clock it ends before the engine can grant another claim (R12):
//
//	deadline = sentAt + d - lockkeeper.Margin(d)
//
// sentAt is the time at which the last answered renewal was sent. d is the TTL, or the time until
// an end that the engine has announced, if that is sooner. A Keepalive is safe for concurrent use.
type Keepalive struct {
	reservations *Reservations
	name         Name
	terms        Terms
	clock        func() time.Duration
	quit         context.CancelFunc
	done         chan struct{} // closed when the reservation has ended
	ran          chan struct{} // closed when the goroutines have ended
	news         chan struct{} // has an element after a change of answer

	mu       sync.Mutex // guards the fields below
	answer   Answer
	deadline time.Duration
	ended    lockkeeper.Status // the end of the claim, as List reported it
	failed   error             // why the latest renewal had no answer; nil if it had one
	wakeBy   time.Duration     // run reads the clock by then, unless this process is suspended
	err      error
}

// Keep renews the name's reservation in the background, and never makes a claim. If the name has
// none, the error is the ErrLost of [Reservations.Renew]. clock must advance while the computer
// sleeps; otherwise the reservation may end before the Keepalive does. The caller must call Stop.
func (p *Reservations) Keep(ctx context.Context, n Name, terms Terms, clock func() time.Duration) (*Keepalive, error) {
	sent := clock()
	a, err := p.Renew(ctx, n, terms)
	if err != nil {
		return nil, n.wrap("keep", err)
	}
	return p.keep(n, terms, clock, a, sent), nil
}

// keep starts with answer a, which was requested at sent.
func (p *Reservations) keep(n Name, terms Terms, clock func() time.Duration, a Answer, sent time.Duration) *Keepalive {
	ctx, quit := context.WithCancel(context.Background())
	k := &Keepalive{
		reservations: p, name: n, terms: terms, clock: clock, quit: quit,
		done: make(chan struct{}), ran: make(chan struct{}), news: make(chan struct{}, 1), wakeBy: clock() + tick,
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

// Stop ends the renewals. The reservation ends with its TTL.
func (k *Keepalive) Stop() {
	k.quit()
	<-k.ran
}

// Release stops the renewals and releases the reservation. It returns 1, or 0 if the reservation
// has ended. It does not touch a later reservation of the name.
func (k *Keepalive) Release(ctx context.Context) (int, error) {
	k.Stop()
	return k.reservations.release(ctx, k.name, k.Answer().Ticket, anyState)
}

// Done is closed when the reservation has ended or may have ended, before another claim can be
// granted. Stop does not close it.
func (k *Keepalive) Done() <-chan struct{} { return k.done }

// Err returns why the reservation has ended: an ErrLost with the reason, which is Released, Yielded
// or Cancelled if the same name ended it. It returns nil before the end.
func (k *Keepalive) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil && k.clock() >= k.deadline {
		return k.lateError()
	}
	return k.err
}

// Why is Err, but asks the engine for the reason if this process knows only that it did not renew
// in time. It takes at most two seconds.
func (k *Keepalive) Why(ctx context.Context) error {
	err := k.Err()
	switch {
	case errors.Is(err, lockkeeper.Suspended), errors.Is(err, lockkeeper.Unreachable), errors.Is(err, lockkeeper.Expired),
		errors.Is(err, lockkeeper.QuorumLost):
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, inquiry)
	defer cancel()
	st, failed := k.reservations.session(k.name).Look(ctx)
	if failed != nil || !k.isEnd(st) || st.Reason == lockkeeper.Expired {
		return err // says why the renewals failed, too
	}
	return k.name.wrap("keep", k.name.nothingHeld(st))
}

// isEnd reports whether st is the end of this reservation, and not of an earlier or a later one.
func (k *Keepalive) isEnd(st lockkeeper.Status) bool {
	a := k.Answer()
	return st.State == lockkeeper.Ended && st.Change > a.Change && (a.State == lockkeeper.Waiting || st.Fence == a.Fence)
}

// Answer returns the latest answer.
func (k *Keepalive) Answer() Answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answer
}

// Changes returns a channel that has an element if the answer may have changed since the caller
// last received one.
func (k *Keepalive) Changes() <-chan struct{} { return k.news }

// Remaining returns the time until the deadline: for so long the reservation lives even if no
// further renewal is answered.
func (k *Keepalive) Remaining() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, k.deadline-k.clock())
}

// set records an answer that was requested at sent.
func (k *Keepalive) set(a Answer, sent time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer, k.ended, k.failed = a, lockkeeper.Status{}, nil
	end := a.TTL
	if a.Asked != nil {
		end = min(end, a.Asked.Left)
	}
	k.deadline = sent + end - lockkeeper.Margin(end)
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// next returns the time between two renewals: TTL/3, less a random part of at most a fifth of that,
// so that many renewals spread out.
func (k *Keepalive) next() time.Duration {
	third := k.terms.ttl() / 3
	return third - rand.N(third/5)
}

// planWake records that run reads the clock within d; Forever if it has ended. After the deadline
// it changes nothing, because lateError needs the value.
func (k *Keepalive) planWake(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.clock(); now < k.deadline {
		k.wakeBy = now + min(d, lockkeeper.Forever-now)
	}
}

// run renews until ctx or the reservation ends.
func (k *Keepalive) run(ctx context.Context, events <-chan lockkeeper.Status, sent time.Duration) {
	defer k.planWake(lockkeeper.Forever)
	due := sent + k.next()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(min(tick, max(0, due-k.clock()), k.Remaining()))
		k.planWake(tick)
		refresh := false
		select {
		case <-ctx.Done():
			return
		case st := <-events:
			refresh = k.applyEvent(st)
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
		case k.Remaining() == 0: // also after a good answer: Err may have reported the end already
			k.failure(err)
			k.end(k.Err())
			return
		case err == nil && a.Ticket == k.Answer().Ticket:
			k.set(a, now)
			due = now + k.next()
		case err == nil:
			k.end(k.replaced())
			return
		case errors.Is(err, lockkeeper.ErrUnavailable):
			k.failure(err)
			due = k.clock() + retry
		default:
			k.end(k.explain(err))
			return
		}
	}
}

// renew is one renewal, bounded by the rest of the lease.
func (k *Keepalive) renew(ctx context.Context) (Answer, error) {
	bound := min(solo.RoundTrip, k.Remaining())
	k.planWake(bound)
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return k.reservations.Renew(ctx, k.name, k.terms)
}

// failure records why a renewal had no answer, unless this process was suspended.
func (k *Keepalive) failure(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil || k.clock() <= k.wakeBy+stall {
		k.failed = err
	}
}

// applyEvent records a status that List reported. It returns true if only a renewal can report the
// present state.
func (k *Keepalive) applyEvent(st lockkeeper.Status) (renew bool) {
	ended := k.isEnd(st)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ended:
		k.ended = st
		return true
	case st.State != k.answer.State || st.Ticket != k.answer.Ticket || st.Change != k.answer.Change:
		return true // also for another request to yield: it may state another end
	}
	k.answer.Status = st // position and blockers
	select {
	case k.news <- struct{}{}:
	default:
	}
	return false
}

// explain adds the reason to err if the renewal found no claim.
func (k *Keepalive) explain(err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost || e.Reason != lockkeeper.NoReason {
		return k.name.wrap("keep", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	lost := k.lostError()
	// The session cannot expire before the deadline, so another process of the name has left it.
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

// replaced returns the ErrLost of a reservation whose name has another claim by now.
func (k *Keepalive) replaced() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.lostError()
	e.Detail = k.name.As + " has grabbed it again since"
	return e
}

// lostError returns the error of a reservation that has ended, with the reason if List reported it.
// The caller holds k.mu.
func (k *Keepalive) lostError() *lockkeeper.Error {
	return &lockkeeper.Error{
		Op:     "keep",
		Path:   k.name.firstPath(),
		Err:    lockkeeper.ErrLost,
		Reason: k.ended.Reason,
		Detail: k.ended.Text,
	}
}

// lateError returns the error of a reservation that was not renewed before its deadline, with the
// reason as far as this process knows it. The caller holds k.mu.
func (k *Keepalive) lateError() error {
	e := k.lostError()
	asked := k.answer.Asked
	switch {
	case e.Reason != lockkeeper.NoReason:
		return e
	case asked != nil && asked.Left < k.answer.TTL: // no renewal could have moved that end
		e.Reason = asked.Reason
		if asked.Reason == lockkeeper.Revoked {
			e.Detail = asked.Words()
		}
		return e
	case errors.Is(k.failed, lockkeeper.QuorumLost):
		e.Reason, e.Cause = lockkeeper.QuorumLost, k.failed
	case k.failed != nil:
		e.Reason, e.Cause = lockkeeper.Unreachable, k.failed
	case k.wakeBy != lockkeeper.Forever && k.clock() > k.wakeBy+stall:
		e.Reason = lockkeeper.Suspended
	default:
		e.Reason = lockkeeper.Expired
	}
	if k.answer.State == lockkeeper.Waiting {
		e.Detail = "it only waited"
	}
	return e
}

// end records why the reservation has ended.
func (k *Keepalive) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
		close(k.done)
	}
}

// follow sends the changes of n's claim to to until ctx ends. It may miss changes, which the next
// renewal reports.
func (p *Reservations) follow(ctx context.Context, n Name, to chan<- lockkeeper.Status) {
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
