package remote_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
)

// insisting is an engine that repeats unanswered calls until ctx ends, as a Client does. With it,
// checks that call an engine once work on a network that loses answers.
type insisting struct {
	lockkeeper.Engine
	when *atomic.Bool // nil: always
}

func (e insisting) insist(ctx context.Context, do func(context.Context) error) error {
	if e.when != nil && !e.when.Load() {
		return do(ctx)
	}
	return insist(ctx, func() error {
		bounded, cancel := context.WithTimeout(ctx, trip)
		defer cancel()
		return do(bounded)
	})
}

func insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, lockkeeper.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// trip bounds one try, as in a Client: by then an answer counts as lost.
const trip = lockkeeper.MinTTL / 3

func (e insisting) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lease lockkeeper.Lease, err error) {
	unknown := false // whether a try without an answer may have taken effect
	err = e.insist(ctx, func(ctx context.Context) (err error) {
		lease, err = e.Engine.Attach(ctx, s, notify)
		var refused *lockkeeper.Error
		// A call without notify is not a Client's, but a check that a late attach is refused.
		if errors.As(err, &refused) && refused.Epoch != 0 && unknown && notify != nil {
			s.Epoch = refused.Epoch // the answer to an earlier try was lost
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
		}
		unknown = unknown || err != nil
		return err
	})
	return lease, err
}

func (e insisting) Renew(ctx context.Context, k lockkeeper.Key) (lease lockkeeper.Lease, err error) {
	err = e.insist(ctx, func(ctx context.Context) (err error) {
		lease, err = e.Engine.Renew(ctx, k)
		return err
	})
	return lease, err
}

func (e insisting) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (s lockkeeper.Status, err error) {
	err = e.insist(ctx, func(ctx context.Context) (err error) {
		s, err = e.Engine.Claim(ctx, k, w)
		return err
	})
	return s, err
}

// End counts a repeated Leave as done if the session has ended meanwhile, and a repeated Thaw if
// the path was frozen before the first try. In both cases an earlier try took effect, and its
// answer was lost.
func (e insisting) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	unknown := false
	frozen := ending.Kind == lockkeeper.Thaw && e.frozen(ctx, ending.Path)
	return e.insist(ctx, func(ctx context.Context) error {
		err := e.Engine.End(ctx, k, ending)
		left := ending.Kind == lockkeeper.Leave && errors.Is(err, lockkeeper.ErrSession)
		thawed := frozen && errors.Is(err, lockkeeper.ErrNotHeld)
		if unknown && (left || thawed) {
			return nil
		}
		unknown = unknown || err != nil
		return err
	})
}

// frozen reports whether the engine lists a freeze of path.
func (e insisting) frozen(ctx context.Context, path lockkeeper.Path) bool {
	for s, err := range e.List(ctx, lockkeeper.Query{}) {
		if err == nil && s.State == lockkeeper.Freezing && s.Grants[0].Path == path {
			return true
		}
	}
	return false
}

// List repeats a list that was cut off. A follower then gets the present state again.
func (e insisting) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if e.when != nil && !e.when.Load() {
		return e.Engine.List(ctx, q)
	}
	return func(yield func(lockkeeper.Status, error) bool) {
		var all []lockkeeper.Status
		err := insist(ctx, func() error {
			all = all[:0]
			for s, err := range e.Engine.List(ctx, q) {
				if err != nil {
					return err
				}
				if !q.Follow {
					all = append(all, s)
				} else if !yield(s, nil) {
					return nil
				}
			}
			return nil
		})
		for _, s := range all {
			if !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(lockkeeper.Status{}, err)
		}
	}
}

// dialInsisting opens the engine at an address, as soon as the network lets it.
func dialInsisting(t *testing.T, address string) (e lockkeeper.Engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := insist(ctx, func() (err error) {
		e, err = remote.Open(ctx, address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// patience is a safety net.
const patience = 20 * time.Second
