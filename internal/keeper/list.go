package keeper

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A statusFunc receives the statuses of a list.
type statusFunc = func(lockkeeper.Status, error) bool

// List implements lockkeeper.Engine. With a log it yields only safe statuses, because clients also
// learn of grants from lists. A stuck log, such as on a full disk, does not block a list.
func (k *Keeper) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) { k.list(ctx, q, k.look, yield) }
}

// A lookFunc lists the claims and freezes that q selects, and adds a watcher if q follows, in one
// step: no change falls between the list and the watch. The caller may send the list when the commit
// is safe.
type lookFunc = func(ctx context.Context, q lockkeeper.Query) (*watcher, []*change, *Commit, error)

// list yields what look lists, and then, if q follows, the changes.
func (p *publisher) list(ctx context.Context, q lockkeeper.Query, look lookFunc, yield statusFunc) {
	if err := q.Check(); err != nil {
		yield(lockkeeper.Status{}, err)
		return
	}
	w, now, commit, err := look(ctx, q)
	defer p.unwatch(w)
	if err == nil && !q.MayKeep(len(now)) {
		err, now = errTooLong, nil
	}
	if err == nil {
		err = p.safeToList(ctx, commit)
	}
	wanted := false
	switch {
	case err == nil:
		wanted = p.deliver(ctx, q, now, yield)
	case q.Stale && !q.Follow && p.log != nil && err != errTooLong:
		p.listStale(ctx, q, err, yield)
	default:
		yield(lockkeeper.Status{}, err)
	}
	q.MayKeep(-len(now))
	if wanted && w != nil {
		p.watch(ctx, w, yield)
	}
}

// safeToList waits until the commit is safe. It returns an error at once while the log is stuck.
func (p *publisher) safeToList(ctx context.Context, commit *Commit) error {
	for commit != nil {
		select {
		case <-commit.done:
			return commit.err
		default:
			p.log.StartCommit()
		}
		select {
		case <-commit.done:
		case <-ctx.Done():
			return p.waitSafe(ctx, commit)
		case <-p.log.Stuck():
			if err := p.log.Admit(true); err != nil {
				return err
			}
		}
	}
	return nil
}

// staleTime limits how long a list waits for the safe table of a stuck log.
const staleTime = 700 * time.Millisecond

// listStale yields the claims that q selects from the log's safe table, and then why as the error.
func (p *publisher) listStale(ctx context.Context, q lockkeeper.Query, why error, yield statusFunc) {
	soon, cancel := context.WithTimeout(ctx, staleTime)
	defer cancel()
	t, err := p.log.Safe(soon)
	if err != nil {
		yield(lockkeeper.Status{}, why)
		return
	}
	ago, all := max(p.clock()-t.Now(), 1), p.staleStatuses(t, q)
	if !q.MayKeep(len(all)) {
		yield(lockkeeper.Status{}, errTooLong)
		return
	}
	defer q.MayKeep(-len(all))
	for _, st := range all {
		if !yield(st, nil) {
			return
		}
	}
	stale := lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: why}
	if typed := new(lockkeeper.Error); errors.As(why, &typed) {
		stale = *typed
	}
	stale.Stale = ago
	yield(lockkeeper.Status{}, &stale)
}

// staleStatuses returns the statuses that q selects from a table that no longer changes. It stops
// computing evidence after mostLooks visits.
func (p *publisher) staleStatuses(t *table.Table, q lockkeeper.Query) []lockkeeper.Status {
	p.staleList.Lock()
	defer p.staleList.Unlock()
	brief := q
	brief.Brief = true
	all := slices.Collect(t.List(brief))
	if q.Sees != nil {
		all = slices.DeleteFunc(all, func(st lockkeeper.Status) bool { return !q.Sees(&st) })
	}
	for i, before := 0, t.Counted(); i < len(all) && !q.Brief && t.Counted()-before < mostLooks; i++ {
		if waits(&all[i]) {
			all[i], _ = t.Explain(all[i].Ref)
		}
	}
	return all
}

// look is a lookFunc that lets time pass first.
func (k *Keeper) look(ctx context.Context, q lockkeeper.Query) (*watcher, []*change, *Commit, error) {
	if err := k.lock(ctx, false); err != nil {
		return nil, nil, nil, err
	}
	k.beforeList(&q)
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	_, _ = k.table.Step(&k.command) // a Pass is never refused
	now := k.present(q)
	news, _ := k.gatherStep("", nil) // for existing watchers; the list of w includes the step
	w := k.follow(q)
	commit := k.record.latest
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return w, now, commit, nil
}

// follow adds a watcher if q follows, else it returns nil. The caller holds the mutex.
func (p *publisher) follow(q lockkeeper.Query) *watcher {
	if !q.Follow {
		return nil
	}
	w := &watcher{query: q, since: p.changes, wakeup: make(chan struct{}, 1)}
	p.watchers.Add(q, w)
	return w
}

// present returns the current statuses that q selects. It stops computing evidence after mostLooks
// visits. The caller holds the mutex.
func (p *publisher) present(q lockkeeper.Query) []*change {
	var now []change
	brief, looks := q, 0
	brief.Brief = true
	for st := range p.table.List(brief) {
		now = append(now, change{status: st})
	}
	all := make([]*change, len(now))
	for i := range now {
		c := &now[i]
		if all[i] = c; !q.Brief && waits(&c.status) && looks < mostLooks {
			looks += p.explain(c)
		}
	}
	return all
}
