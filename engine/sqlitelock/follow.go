package sqlitelock

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/following"
)

// followPause is the least time between two looks of one follower, so that a
// busy engine does not keep it busy too.
const followPause = 40 * time.Millisecond

// List implements lockkeeper.Engine. A follower is told what differs from what
// it was told last, at most some twenty times a second: what came and went in
// between it misses, but never the last state of a claim.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if q.Follow {
			e.follow(ctx, q, yield)
			return
		}
		all, err := e.list(ctx, q)
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		for _, st := range all {
			if !yield(st, nil) {
				return
			}
		}
	}
}

func (e *Engine) list(ctx context.Context, q lockkeeper.Query) ([]lockkeeper.Status, error) {
	var all []lockkeeper.Status
	err := e.call(ctx, true, func(tx *transaction) {
		all = slices.Collect(e.shown().List(q))
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// follower is one List that goes on.
type follower struct {
	query lockkeeper.Query
	bell  chan struct{}

	mu    sync.Mutex
	ended []lockkeeper.Status // what ended since it last looked
}

// tell notes what ended, and wakes the follower.
func (f *follower) tell(ended []lockkeeper.Status) {
	f.mu.Lock()
	for _, st := range ended {
		if f.query.Selects(&st) {
			f.ended = append(f.ended, st)
		}
	}
	f.mu.Unlock()
	f.ring()
}

func (f *follower) ring() {
	select {
	case f.bell <- struct{}{}:
	default:
	}
}

// takeEnded returns what ended since the last call.
func (f *follower) takeEnded() []lockkeeper.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := f.ended
	f.ended = nil
	return ended
}

// followed counts the followers.
func (e *Engine) followed() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.followers)
}

// follow yields what q selects, and goes on with what changes of it.
func (e *Engine) follow(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	f := &follower{query: q, bell: make(chan struct{}, 1)}
	e.mu.Lock()
	e.followers[f] = struct{}{}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.followers, f)
		e.mu.Unlock()
	}()
	pause := time.NewTimer(0)
	defer pause.Stop()
	told := following.New()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		all, err := e.list(ctx, q)
		if err != nil {
			if ctx.Err() == nil {
				yield(lockkeeper.Status{}, err)
			}
			return
		}
		if !told.Tell(all, f.takeEnded(), yield) {
			return
		}
		pause.Reset(followPause)
		select {
		case <-f.bell:
		case <-ctx.Done():
			return
		}
	}
}
