package sqlitelock

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// followPause is the least time between two looks of one follower, so that a
// busy engine does not keep it busy too.
const followPause = 40 * time.Millisecond

// List implements lockkeeper.Engine. A follower is told what differs from what
// it was told last, at most some twenty times a second: what came and went in
// between it misses, but never the last state of a claim.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if err := q.Check(); err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
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

// Bounds of the ends kept for a follower that does not read: beyond them it ends.
const (
	mostEnded = 4096        // claims that ended since it looked, if it has not for readTime
	mostAtAll = 1 << 17     // claims that ended since it looked, in any case: one step can end many
	readTime  = time.Second // a follower that reads does so within this time
)

var errTooSlow error = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: fmt.Sprintf("the watcher is too slow: more than %d claims have ended since it read; begin again", mostEnded),
}

// follower is one List that goes on.
type follower struct {
	bell    chan struct{}
	waiting atomic.Bool // it has shown why a claim waits, which any change may alter

	mu    sync.Mutex
	ended []lockkeeper.Status // what ended since it last looked
	first time.Time           // when the first of them did
	slow  bool                // too much did
}

// tell notes what ended, and wakes the follower.
func (f *follower) tell(ended *lockkeeper.Status) {
	f.mu.Lock()
	if len(f.ended) == 0 {
		began := time.Now()
		f.first = began
	}
	switch n := len(f.ended); {
	case f.slow:
	case n >= mostEnded && time.Since(f.first) > readTime || n == mostAtAll:
		f.slow, f.ended = true, nil
	default:
		f.ended = append(f.ended, *ended)
	}
	f.mu.Unlock()
	f.ring()
}

// tellFollowers notes what ended, and wakes the followers that a change concerns.
func (e *Engine) tellFollowers(n *news) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range n.ended {
		for f := range e.followers.Selecting(&n.ended[i]) {
			f.tell(&n.ended[i])
		}
	}
	for i := range n.changed {
		for f := range e.followers.Selecting(&n.changed[i]) {
			f.ring()
		}
	}
	for f := range e.followers.All() {
		if n.anything || f.waiting.Load() {
			f.ring()
		}
	}
}

func (f *follower) ring() {
	select {
	case f.bell <- struct{}{}:
	default:
	}
}

// takeEnded returns what ended since the last call.
func (f *follower) takeEnded() ([]lockkeeper.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow {
		return nil, errTooSlow
	}
	ended := f.ended
	f.ended = nil
	return ended, nil
}

// followed counts the followers.
func (e *Engine) followed() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.followers.Len()
}

// waits reports whether there is evidence of st.
func waits(st lockkeeper.Status) bool { return st.State == lockkeeper.Waiting || st.Converting }

// follow yields what q selects, and goes on with what changes of it.
func (e *Engine) follow(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	f := &follower{bell: make(chan struct{}, 1)}
	e.mu.Lock()
	e.followers.Add(q, f)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.followers.Remove(f)
		e.mu.Unlock()
	}()
	pause := time.NewTimer(0)
	defer pause.Stop()
	reported := watching.NewReported()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		f.waiting.Store(!q.Brief) // until the first read sets it
		all, err := e.list(ctx, q)
		var ended []lockkeeper.Status
		if err == nil {
			ended, err = f.takeEnded()
		}
		if err != nil {
			if ctx.Err() == nil {
				yield(lockkeeper.Status{}, err)
			}
			return
		}
		f.waiting.Store(!q.Brief && slices.ContainsFunc(all, waits))
		if !reported.Changes(all, ended, yield) {
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
