package grab

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Wait grabs, and waits for at most so long until it holds, keeping its place
// meanwhile. When the bound or ctx ends first it has a place still, for the TTL:
// the answer says so, and the error is nil for the bound, and for ctx an
// ErrNotAcquired. If others are sure to hold for longer than the bound it does not
// wait (R8): the answer is Outlasted. A place that is lost meanwhile is an
// ErrNotAcquired with the reason, and not queued for anew; if the engine could
// not be reached until it was over, an ErrUnavailable.
//
// told, if it is not nil, is called with each answer that says something new
// while it waits.
func (p *Places) Wait(ctx context.Context, r Request, bound time.Duration, told func(Answer)) (Answer, error) {
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) } // the engine tells what it can't know
	a, err := p.Grab(ctx, r)
	if err != nil || a.State == lockkeeper.Held || bound <= 0 {
		return a, err
	}
	var (
		n    = r.Name()
		lost = a.Lost
		late = time.NewTimer(bound)
		k    = p.keep(n, r.Terms, clock, a, 0)
		seen = make(map[lockkeeper.Ref]bool)
	)
	defer late.Stop()
	defer k.Stop()
	for {
		select {
		case <-k.News():
		case <-k.Done():
			return Answer{Lost: lost}, n.gaveUp(k.Err(), a)
		case <-late.C:
			a = k.Answer()
			a.Lost = lost
			return a, nil
		case <-ctx.Done():
			a.Lost = lost
			return a, n.wrap("grab", &lockkeeper.Error{Err: lockkeeper.ErrNotAcquired, Place: a.Place, Cause: context.Cause(ctx)})
		}
		if a = k.Answer(); a.State == lockkeeper.Held {
			a.Lost = lost
			return a, nil
		}
		if told != nil {
			told(a)
		}
		left := bound - clock()
		if p.mayOutlast(a, left, seen) && p.outlasted(ctx, r, left) {
			a.Lost, a.Outlasted = lost, true
			return a, nil
		}
	}
}

// gaveUp is the error of a wait whose place is gone.
func (n Name) gaveUp(err error, last Answer) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Err != lockkeeper.ErrLost {
		return err
	}
	ended := *e
	ended.Op, ended.Path, ended.Err, ended.Place = "grab", n.what(), lockkeeper.ErrNotAcquired, last.Place
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
	ctx, cancel := context.WithTimeout(ctx, roundTrip)
	defer cancel()
	lease, err := p.engine.Attach(ctx, lockkeeper.Session{
		ID: "grab-asks-" + strings.ToLower(rand.Text()), TTL: lockkeeper.MinTTL, Outlive: true, Label: lockkeeper.Label{As: r.As},
	}, nil)
	if err != nil {
		return false
	}
	want := r.want()
	want.Wait, want.Lasts = max(left, time.Millisecond), 0
	st, err := p.engine.Claim(ctx, lease.Key, want)
	_ = p.leave(ctx, lease.Key) // or it ends within its TTL
	return err == nil && st.State == lockkeeper.Ended && st.Reason == lockkeeper.TimedOut
}
