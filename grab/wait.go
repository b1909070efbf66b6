package grab

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// lastQuery bounds the query for the state of a claim whose wait has ended.
const lastQuery = 5 * time.Second

// Wait grabs, renews the claim while it waits, and returns when it is held or after bound. If it is
// not granted, Wait ends the claim that it made; a claim that the name had before, or that another
// process of the name made since, lives until its TTL ends. The error is nil after bound, and an
// ErrNotAcquired if ctx ended first.
//
// Wait returns early if other holds certainly last longer than bound (Answer.Hopeless, R8), and if
// the name waits for a hold of its own (Answer.OwnHolds). If the claim ends meanwhile, the error is
// an ErrNotAcquired with the reason, and Wait does not queue again; if the engine could not be
// reached until the claim ended, it is an ErrUnavailable. The claim may live on in the engine for a
// moment after Wait counts it as ended; Wait then tries to end the claim that it made.
//
// notify, if it is not nil, is called with each new answer while Wait waits.
func (p *Reservations) Wait(ctx context.Context, r Request, bound time.Duration, notify func(Answer)) (Answer, error) {
	start := time.Now()
	n, t := r.Name(), &attempt{}
	a, err := p.attempt(ctx, r, bound, t)
	if err != nil && ctx.Err() != nil {
		_ = p.withdraw(ctx, n, t, anyState) // if that fails, the claim ends with its TTL
	}
	if err != nil || a.State == lockkeeper.Held || bound <= 0 {
		return a, err
	}
	if a.OwnHolds == nil {
		a, err = p.wait(ctx, r, bound, start, a, notify)
	}
	if a.State == 0 && notRenewed(err) {
		// If it was granted meanwhile, another process of the name may have been told so.
		_ = p.withdraw(ctx, n, t, onlyWaiting) // if that fails, the claim ends with its TTL
	}
	a.Lost = t.lost
	if a.State == lockkeeper.Waiting {
		a, err = p.giveUp(ctx, r, t, a, err)
	}
	return a, n.wrap("grab", err)
}

// wait keeps the claim of answer a alive until it is held, or until Wait has to give up. The bound
// counts from start.
func (p *Reservations) wait(ctx context.Context, r Request, bound time.Duration, start time.Time, a Answer,
	notify func(Answer)) (Answer, error) {
	n := r.Name()
	// This clock may stand still during suspension: the engine reports a claim that ended then.
	clock := func() time.Duration { return time.Since(start) }
	late := time.NewTimer(bound - clock())
	defer late.Stop()
	if time.Since(a.renewed) >= a.TTL-lockkeeper.Margin(a.TTL) { // the answer took so long, or others after it
		again, err := p.renewWithin(ctx, n, r.Terms, bound-clock())
		switch {
		case errors.Is(err, lockkeeper.ErrLost):
			return Answer{}, n.waitError(err, a)
		case ctx.Err() != nil:
			return a, interrupted(ctx, a)
		case err != nil && clock() >= bound:
			return a, nil
		case err != nil:
			return a, err
		}
		a = again
	}
	k := p.keep(n, r.Terms, clock, a, a.renewed.Sub(start))
	defer k.Stop()
	seen := make(map[lockkeeper.Ref]bool)
	for {
		select {
		case <-k.Changes():
		case <-k.Done():
			return Answer{}, n.waitError(k.Why(ctx), a)
		case <-late.C:
			return k.Answer(), nil
		case <-ctx.Done():
			return a, interrupted(ctx, a)
		}
		if a = k.Answer(); a.State == lockkeeper.Held {
			return a, nil
		}
		if notify != nil {
			notify(a)
		}
		left := bound - clock()
		if a.OwnHolds = p.ownHolds(ctx, n, a); a.OwnHolds != nil {
			return a, nil
		}
		if p.mayBeHopeless(a, left, seen) && p.isHopeless(ctx, r, left) {
			a.Hopeless = true
			return a, nil
		}
	}
}

// interrupted returns the error of a wait whose ctx has ended.
func interrupted(ctx context.Context, last Answer) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrNotAcquired, Position: last.Position, Cause: context.Cause(ctx)}
}

// renewWithin is Renew with a bound.
func (p *Reservations) renewWithin(ctx context.Context, n Name, terms Terms, bound time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return p.Renew(ctx, n, terms)
}

// notRenewed reports whether a wait ended with err because this process could not renew the claim in
// time. The engine may still have the claim.
func notRenewed(err error) bool {
	return errors.Is(err, lockkeeper.Expired) || errors.Is(err, lockkeeper.Suspended) ||
		errors.Is(err, lockkeeper.Unreachable) || errors.Is(err, lockkeeper.QuorumLost)
}

// giveUp ends a wait: a is its last answer, and err is not nil if ctx ended. If the claim was
// granted in the last moment and ctx is live, giveUp returns the hold.
func (p *Reservations) giveUp(ctx context.Context, r Request, t *attempt, a Answer, err error) (Answer, error) {
	n := r.Name()
	ended := lockkeeper.Cancelled
	if err == nil {
		ended = lockkeeper.TimedOut
		now, failed := p.renewWithin(ctx, n, r.Terms, lastQuery)
		if failed == nil && now.Ticket == a.Ticket && now.State == lockkeeper.Held {
			now.Lost = a.Lost
			return now, nil
		}
	}
	if a.Ticket != t.ticket {
		return a, err // Wait did not make this claim
	}
	if p.withdraw(ctx, n, t, anyState) {
		a.State, a.Reason, a.Left = lockkeeper.Ended, ended, 0
	}
	return a, err
}

// withdraw ends the claim that t made, and no claim that the name had before or that another
// process made since. It reports whether the claim has certainly ended.
func (p *Reservations) withdraw(ctx context.Context, n Name, t *attempt, which releases) bool {
	return solo.Cleanup(ctx, func(ctx context.Context) (err error) {
		switch {
		case t.ticket != 0:
			_, err = p.release(ctx, n, t.ticket, which)
		case t.key != lockkeeper.Key{}:
			// Under this key there can only be the claim that t sent. If that arrives later, it is
			// refused. If another process has attached since, Leave has no effect.
			err = p.session(n).Leave(ctx, t.key)
		}
		return err
	}) == nil
}

// ownHolds returns the paths of another reservation of n.As that blocks n's waiting claim; nil if
// none does.
func (p *Reservations) ownHolds(ctx context.Context, n Name, a Answer) []lockkeeper.Path {
	ctx, cancel := context.WithTimeout(ctx, solo.RoundTrip)
	defer cancel()
	for _, b := range a.Blockers {
		if a.State != lockkeeper.Waiting || b.As != n.As || b.Why != lockkeeper.HeldBy && b.Why != lockkeeper.AskedToYield {
			continue
		}
		// The label proves nothing. The session id is a hash of the name and the paths.
		for st, err := range p.engine.List(ctx, lockkeeper.Query{Ref: b.Ref}) {
			other := Name{As: n.As}
			for _, g := range st.Grants {
				other.Paths = append(other.Paths, g.Path)
			}
			if err == nil && other.Ref() == b.Ref {
				return other.Paths
			}
		}
	}
	return nil
}

// waitError returns the error of a wait whose claim has ended.
func (n Name) waitError(err error, last Answer) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost {
		return err
	}
	ended := *e
	ended.Op, ended.Path, ended.Err, ended.Position = "grab", n.firstPath(), lockkeeper.ErrNotAcquired, last.Position
	if e.Reason == lockkeeper.Unreachable || e.Reason == lockkeeper.QuorumLost {
		ended.Err = lockkeeper.ErrUnavailable // ErrNotAcquired would mean that the path is taken
	}
	return &ended
}

// mayBeHopeless reports whether a blocker that is not in seen ends no sooner than left.
func (p *Reservations) mayBeHopeless(a Answer, left time.Duration, seen map[lockkeeper.Ref]bool) bool {
	any := false
	for _, b := range a.Blockers {
		if b.Left >= left && b.Left != lockkeeper.Forever && !seen[b.Ref] {
			seen[b.Ref], any = true, true
		}
	}
	return any
}

// isHopeless asks the engine whether other holds certainly last longer than left (R8). It sends a
// claim of a transient session with that wait: the claim queues behind that of r, and ends at once.
func (p *Reservations) isHopeless(ctx context.Context, r Request, left time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, solo.RoundTrip)
	defer cancel()
	want, longer := r.want(), false
	want.Wait, want.Expected = max(left, time.Millisecond), 0
	err := solo.Transient(ctx, p.engine, asking, lockkeeper.MinTTL, r.As,
		func(ctx context.Context, k lockkeeper.Key) error {
			st, err := p.engine.Claim(ctx, k, want)
			longer = st.State == lockkeeper.Ended && st.Reason == lockkeeper.TimedOut
			return err
		})
	return err == nil && longer
}
