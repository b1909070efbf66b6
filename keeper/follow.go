package keeper

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A follower goes on with every change of what its query selects. It keeps only
// the latest state of each claim. Since claims come and go, that is no bound for one
// that does not read: with too much untold it ends, and can only begin anew. It takes
// all that is untold at once, so that one who follows a busy engine seldom needs the
// mutex.
type follower struct {
	query   lockkeeper.Query
	bell    chan struct{}
	untold  []lockkeeper.Status // not yet taken, oldest first
	place   map[subject]int     // of each in untold
	tooSlow bool
}

// mostUntold is how many claims may have changed since a follower read.
const mostUntold = 1 << 14

// keptRoom is for how many claims a follower keeps room that it does not need just now.
const keptRoom = 1024

var errTooSlow error = &lockkeeper.Error{
	Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf("the follower is too slow: more than %d claims have changed since it read; list again", mostUntold),
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

// put has f tell st next. The mutex is held.
func (f *follower) put(about subject, st lockkeeper.Status) {
	if f.tooSlow {
		return
	}
	switch i, waits := f.place[about]; {
	case waits:
		f.untold[i] = st
	case len(f.untold) == mostUntold:
		f.tooSlow, f.untold, f.place = true, nil, nil
	default:
		f.place[about] = len(f.untold)
		f.untold = append(f.untold, st)
	}
	f.ring()
}

// tellFollowers passes an event on, with a log as a part of n. What explains it is
// found out only if somebody selects it who wants to know: it can cost as much as the
// line is long, and everybody waits for it. The mutex is held.
func (k *Keeper) tellFollowers(ev *table.Event, n *news) {
	st, ok := k.table.Status(ev.Ref)
	explained := ev.Path != ""
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
		if !f.query.Brief && !explained {
			st, _ = k.table.Explain(ev.Ref)
			explained = true
		}
		if k.log == nil {
			f.put(about, st)
		} else {
			n.followed = append(n.followed, followed{f, about, st})
		}
	}
}

// follow yields changes until ctx ends or the keeper closes.
func (k *Keeper) follow(ctx context.Context, f *follower, yield func(lockkeeper.Status, error) bool) {
	defer k.unfollow(f)
	var told []lockkeeper.Status
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.bell:
		}
		for {
			news, err := k.next(f, told)
			if err != nil {
				yield(lockkeeper.Status{}, err)
				return
			}
			if len(news) == 0 {
				break
			}
			for i := range news {
				if ctx.Err() != nil || !yield(news[i], nil) {
					return
				}
			}
			told = nil
			if cap(news) <= keptRoom {
				clear(news) // nothing is kept alive by it
				told = news[:0]
			}
		}
	}
}

// next takes all that is untold; room is for what comes next.
func (k *Keeper) next(f *follower, room []lockkeeper.Status) ([]lockkeeper.Status, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return nil, unavailable(errClosed)
	case k.record.broken != nil:
		return nil, k.record.broken
	case f.tooSlow:
		return nil, errTooSlow
	case len(f.untold) == 0:
		return nil, nil
	}
	news := f.untold
	f.untold = room
	if len(news) <= keptRoom {
		clear(f.place)
	} else {
		f.place = make(map[subject]int) // a map never shrinks
	}
	return news, nil
}

func (k *Keeper) unfollow(f *follower) {
	if f == nil {
		return
	}
	k.mu.Lock()
	delete(k.followers, f)
	k.mu.Unlock()
}
