package keeper

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A follower goes on with every change of what its query selects. It keeps only
// the latest state of each claim, so a slow one costs no more than there are claims.
type follower struct {
	query  lockkeeper.Query
	bell   chan struct{}
	order  []subject // those with a state not yet yielded, oldest first
	latest map[subject]lockkeeper.Status
}

// A subject is a claim, or one path of a freeze.
type subject struct {
	ref  lockkeeper.Ref
	path lockkeeper.Path
}

func (f *follower) ring() {
	select {
	case f.bell <- struct{}{}:
	default:
	}
}

// tellFollowers passes an event on. The mutex is held.
func (k *Keeper) tellFollowers(ev *table.Event) {
	st, ok := k.table.Explain(ev.Ref)
	if ev.Path != "" {
		st, ok = k.table.Freeze(ev.Path)
		if ev.Kind == table.Thawed || !ok {
			target := lockkeeper.Target{Path: ev.Path, Mode: lockkeeper.ModeExclusive}
			st = lockkeeper.Status{Ref: ev.Ref, State: lockkeeper.Ended, Reason: ev.Reason, Grants: []lockkeeper.Grant{{Target: target}}}
			ok = true
		}
	}
	if !ok {
		return
	}
	about := subject{ev.Ref, ev.Path}
	for f := range k.followers {
		if !f.query.Selects(&st) {
			continue
		}
		if _, waits := f.latest[about]; !waits {
			f.order = append(f.order, about)
		}
		f.latest[about] = st
		f.ring()
	}
}

// follow yields changes until ctx ends or the keeper closes.
func (k *Keeper) follow(ctx context.Context, f *follower, yield func(lockkeeper.Status, error) bool) {
	defer k.unfollow(f)
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.bell:
		}
		for {
			st, any, closed := k.next(f)
			if closed {
				yield(lockkeeper.Status{}, unavailable(errClosed))
				return
			}
			if !any {
				break
			}
			if !yield(st, nil) {
				return
			}
		}
	}
}

func (k *Keeper) next(f *follower) (st lockkeeper.Status, any, closed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return st, false, true
	}
	if len(f.order) == 0 {
		return st, false, false
	}
	about := f.order[0]
	f.order = f.order[1:]
	st = f.latest[about]
	delete(f.latest, about)
	return st, true, false
}

func (k *Keeper) unfollow(f *follower) {
	if f == nil {
		return
	}
	k.mu.Lock()
	delete(k.followers, f)
	k.mu.Unlock()
}
