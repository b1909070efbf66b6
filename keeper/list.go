package keeper

import (
	"context"
	"iter"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// List implements lockkeeper.Engine. With a log it tells nothing that is not safe,
// since clients learn of grants by it too.
func (k *Keeper) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		w, now, commit, err := k.look(ctx, q)
		defer k.unwatch(w)
		if err == nil && !q.MayKeep(len(now)) {
			err, now = errTooLong, nil
		}
		if err == nil {
			err = k.safe(ctx, commit)
		}
		wanted := false
		if err != nil {
			yield(lockkeeper.Status{}, err)
		} else {
			wanted = k.deliver(ctx, q, now, yield)
		}
		q.MayKeep(-len(now))
		if wanted && w != nil {
			k.watch(ctx, w, yield)
		}
	}
}

// look lists what q selects, and begins to watch it if q says so, in one step:
// nothing falls between the list and what follows. The list may be told when the
// commit is safe.
func (k *Keeper) look(ctx context.Context, q lockkeeper.Query) (*watcher, []*change, *Commit, error) {
	if err := k.lock(ctx, false); err != nil {
		return nil, nil, nil, err
	}
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	// A Pass is never refused.
	_, _ = k.table.Step(&k.command)
	now := k.present(q)
	news, _ := k.settle("", nil) // those who watch already are told; w sees it in its list
	var w *watcher
	if q.Follow {
		w = &watcher{query: q, since: k.changes, wake: make(chan struct{}, 1)}
		k.watchers.add(w)
	}
	commit := k.record.latest
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return w, now, commit, nil
}

// present is what q selects, explained as far as that costs little. The mutex is held.
func (k *Keeper) present(q lockkeeper.Query) []*change {
	var now []change
	brief, looks := q, 0
	brief.Brief = true
	for st := range k.table.List(brief) {
		now = append(now, change{status: st})
	}
	all := make([]*change, len(now))
	for i := range now {
		c := &now[i]
		if all[i] = c; !q.Brief && waits(&c.status) && looks < mostLooks {
			looks += k.explain(c)
		}
	}
	return all
}
