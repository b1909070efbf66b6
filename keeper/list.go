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
		f, now, commit, err := k.look(ctx, q)
		if err == nil {
			err = k.safe(ctx, commit)
		}
		if err != nil {
			k.unfollow(f)
			yield(lockkeeper.Status{}, err)
			return
		}
		for _, st := range now {
			if !yield(st, nil) {
				k.unfollow(f)
				return
			}
		}
		if f != nil {
			k.follow(ctx, f, yield)
		}
	}
}

// look lists what q selects, and begins to follow it if q says so, in one step:
// nothing falls between the list and what follows. The list may be told when the
// commit is safe.
func (k *Keeper) look(ctx context.Context, q lockkeeper.Query) (*follower, []lockkeeper.Status, *Commit, error) {
	if err := k.lock(ctx, false); err != nil {
		return nil, nil, nil, err
	}
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	// A Pass is never refused.
	_, _ = k.table.Step(&k.command)
	var now []lockkeeper.Status
	for st := range k.table.List(q) {
		now = append(now, st)
	}
	news, _ := k.settle("", nil) // those who follow already are told; f sees it in its list
	var f *follower
	if q.Follow {
		f = &follower{query: q, bell: make(chan struct{}, 1), place: make(map[subject]int)}
		k.followers[f] = struct{}{}
	}
	commit := k.record.latest
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return f, now, commit, nil
}
