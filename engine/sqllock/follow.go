package sqllock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
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
		all = slices.Collect(e.cache.table.List(q))
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
	ended map[subject]lockkeeper.Status // what ended since it last looked
}

// tell notes what ended, and wakes the follower.
func (f *follower) tell(ended []lockkeeper.Status) {
	f.mu.Lock()
	for _, st := range ended {
		if f.query.Selects(&st) {
			f.ended[subjectOf(&st)] = st
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
func (f *follower) takeEnded() map[subject]lockkeeper.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := f.ended
	f.ended = make(map[subject]lockkeeper.Status)
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
	f := &follower{query: q, bell: make(chan struct{}, 1), ended: make(map[subject]lockkeeper.Status)}
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
	last := make(map[subject]lockkeeper.Status)
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
		if !f.yieldChanges(last, all, yield) {
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

// yieldChanges yields how all differs from last, and brings last up to it.
func (f *follower) yieldChanges(last map[subject]lockkeeper.Status, all []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	ended := f.takeEnded()
	here := make(map[subject]bool, len(all))
	for _, st := range all {
		here[subjectOf(&st)] = true
	}
	return yieldEnded(last, here, ended, yield) && yieldPresent(last, all, yield)
}

// yieldEnded yields what is here no longer, before those who got it in its place.
func yieldEnded(last map[subject]lockkeeper.Status, here map[subject]bool, ended map[subject]lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	for s, old := range last {
		if _, told := ended[s]; !told && !here[s] && old.State != lockkeeper.Ended {
			old.State, old.Reason = lockkeeper.Ended, lockkeeper.NoReason // how is not known any more
			ended[s] = old
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(ended), func(a, b subject) int { return compareChanges(ended[a], ended[b]) }) {
		if old, known := last[s]; here[s] || known && old.State == lockkeeper.Ended && sameNews(old, ended[s]) {
			continue
		}
		delete(last, s)
		if !yield(ended[s], nil) {
			return false
		}
	}
	return true
}

func yieldPresent(last map[subject]lockkeeper.Status, all []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	for _, st := range all {
		s := subjectOf(&st)
		if old, known := last[s]; known && sameNews(old, st) {
			continue
		}
		last[s] = st
		if !yield(st, nil) {
			return false
		}
	}
	return true
}

func compareChanges(a, b lockkeeper.Status) int {
	switch {
	case a.Change < b.Change:
		return -1
	case a.Change > b.Change:
		return 1
	}
	return 0
}
