package grab

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// lastLook bounds the look at a claim whose wait has ended.
const lastLook = 5 * time.Second

// Wait grabs, and waits for at most so long until it holds, keeping its place
// meanwhile. If it was in vain it gives back the place that it brought, so that
// nobody waits behind one who has gone; a place that the name had before, or that
// another process of the name has taken since, lives on for its TTL. The error is
// nil at the bound, and an ErrNotAcquired if ctx ended first.
//
// It does not wait, or not any longer, if others are sure to hold for longer than
// the bound (R8), and if it waits for a hold of the same name: the answer says so,
// as Outlasted or Itself. A place that is lost meanwhile is an ErrNotAcquired with
// the reason, and not queued for anew; if the engine could not be reached until it
// was over, an ErrUnavailable.
//
// told, if it is not nil, is called with each answer that says something new
// while it waits.
func (p *Places) Wait(ctx context.Context, r Request, bound time.Duration, told func(Answer)) (Answer, error) {
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) } // the engine tells what it can't know
	n, t := r.Name(), &taking{}
	a, err := p.take(ctx, r, t)
	if err != nil && ctx.Err() != nil {
		_ = p.giveBack(ctx, n, t) // else it ends with its TTL
	}
	if err != nil || a.State == lockkeeper.Held || bound <= 0 {
		return a, err
	}
	if a.Itself == nil {
		a, err = p.wait(ctx, r, bound, clock, a, told)
	}
	a.Lost = t.lost
	if a.State == lockkeeper.Waiting {
		a, err = p.inVain(ctx, r, t, a, err)
	}
	return a, n.wrap("grab", err)
}

// wait keeps the place of answer a until it is held, or until it is in vain.
func (p *Places) wait(ctx context.Context, r Request, bound time.Duration, clock func() time.Duration, a Answer,
	told func(Answer)) (Answer, error) {
	n := r.Name()
	late := time.NewTimer(bound - clock())
	defer late.Stop()
	k := p.keep(n, r.Terms, clock, a, 0)
	defer k.Stop()
	seen := make(map[lockkeeper.Ref]bool)
	for {
		select {
		case <-k.News():
		case <-k.Done():
			return Answer{}, n.gaveUp(k.Why(ctx), a)
		case <-late.C:
			return k.Answer(), nil
		case <-ctx.Done():
			return a, &lockkeeper.Error{Err: lockkeeper.ErrNotAcquired, Place: a.Position, Cause: context.Cause(ctx)}
		}
		if a = k.Answer(); a.State == lockkeeper.Held {
			return a, nil
		}
		if told != nil {
			told(a)
		}
		left := bound - clock()
		if a.Itself = p.itself(ctx, n, a); a.Itself != nil {
			return a, nil
		}
		if p.mayOutlast(a, left, seen) && p.outlasted(ctx, r, left) {
			a.Outlasted = true
			return a, nil
		}
	}
}

// inVain ends a wait that did not get what it waited for: answer a, and err if
// ctx ended. What was granted in the last moment is had, if anybody is there.
func (p *Places) inVain(ctx context.Context, r Request, t *taking, a Answer, err error) (Answer, error) {
	n := r.Name()
	ended := lockkeeper.Cancelled
	if err == nil {
		ended = lockkeeper.TimedOut
		bounded, cancel := context.WithTimeout(ctx, lastLook)
		now, failed := p.Renew(bounded, n, r.Terms)
		cancel()
		if failed == nil && now.Ticket == a.Ticket && now.State == lockkeeper.Held {
			now.Lost = a.Lost
			return now, nil
		}
	}
	if a.Ticket != t.ticket {
		return a, err // it was there before
	}
	if p.giveBack(ctx, n, t) {
		a.State, a.Reason, a.Left = lockkeeper.Ended, ended, 0
	}
	return a, err
}

// giveBack gives back what t itself brought, and nothing that the name had before
// or got from another process since. It reports whether that is gone for sure.
func (p *Places) giveBack(ctx context.Context, n Name, t *taking) bool {
	return solo.Cleanup(ctx, func(ctx context.Context) (err error) {
		switch {
		case t.ticket != 0:
			_, err = p.release(ctx, n, t.ticket)
		case t.key != lockkeeper.Key{}:
			// Whatever is there under this key can only be what it claimed, and a claim
			// that arrives later is refused. Another key is another process's.
			err = p.session(n).Leave(ctx, t.key)
		}
		return err
	}) == nil
}

// itself returns the other paths at which n holds what is in the way of its place.
func (p *Places) itself(ctx context.Context, n Name, a Answer) []lockkeeper.Path {
	ctx, cancel := context.WithTimeout(ctx, solo.RoundTrip)
	defer cancel()
	for _, b := range a.Blockers {
		if a.State != lockkeeper.Waiting || b.As != n.As || b.Why != lockkeeper.HeldBy && b.Why != lockkeeper.AskedToYield {
			continue
		}
		// Its label is no proof, but its session is named after its name and paths.
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

// gaveUp is the error of a wait whose place is gone.
func (n Name) gaveUp(err error, last Answer) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost {
		return err
	}
	ended := *e
	ended.Op, ended.Path, ended.Err, ended.Place = "grab", n.what(), lockkeeper.ErrNotAcquired, last.Position
	if e.Reason == lockkeeper.Unreachable {
		ended.Err = lockkeeper.ErrUnavailable // which is never said of what is taken
	}
	return &ended
}

// mayOutlast reports whether somebody new among those in the way has an end that
// is no sooner than left. Such an end may be one that was announced.
func (p *Places) mayOutlast(a Answer, left time.Duration, seen map[lockkeeper.Ref]bool) bool {
	any := false
	for _, b := range a.Blockers {
		if b.Left >= left && b.Left != lockkeeper.Forever && !seen[b.Ref] {
			seen[b.Ref], any = true, true
		}
	}
	return any
}

// outlasted asks the engine whether a wait of so long is certain to be outlasted:
// it alone knows the rule (R8). A claim of a session of its own asks, behind
// the place, and goes at once.
func (p *Places) outlasted(ctx context.Context, r Request, left time.Duration) bool {
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
