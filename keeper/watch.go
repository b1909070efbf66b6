package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A watcher is one List that goes on with every change of what its query selects. It keeps
// the latest change of each claim that it has not taken, in the order of the changes, so an
// end is told before the grant that it made possible. A watcher that does not read costs no
// more than mostPending references: with more it ends, and can only begin anew. One that reads
// may have more for a moment, since one step can change all claims of a session.
type watcher struct {
	query lockkeeper.Query
	since uint64        // the changes up to this one are in its list
	wake  chan struct{} // rung when there is something to take

	// Guarded by Keeper.mu.
	pending []*change       // not yet taken, oldest first; nil: a later change took its place
	unread  time.Duration   // since then it took nothing though there was something
	taken   int             // so many places were taken from the front of pending, ever
	places  map[subject]int // in pending, counted from the first ever
	err     error           // why it ended
}

// Bounds of what is kept for a watcher.
const (
	mostPending = 4096        // claims that changed since it read, if it has not read for readTime
	mostAtAll   = 1 << 17     // claims that changed since it read, in any case
	readTime    = time.Second // in which a reader reads
	mostTaken   = 256         // changes that it takes at once
	keptRoom    = 1024        // changes for which it keeps room that it does not need just now
)

var errTooSlow error = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: fmt.Sprintf("the watcher is too slow: more than %d claims changed since it read; begin again", mostPending),
}

var (
	errTooMuch error = &lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Detail: "the watcher is too slow: too many changes wait for the watchers of its identity; read faster, watch less, or begin again",
	}
	errTooLong error = &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Reason: lockkeeper.Quota,
		Detail: "too many statuses wait for the lists of this identity to be read: read those first, or try again",
	}
)

// A subject is a claim, or one path of a freeze.
type subject struct {
	ref  lockkeeper.Ref
	path lockkeeper.Path
}

// A change is how a claim, or a freeze, stood after the step that changed it. All watchers
// that have not taken it share it.
type change struct {
	about  subject
	number uint64 // rises with every change that somebody watches
	status lockkeeper.Status
	evidence
}

// ring wakes whoever reads.
func (w *watcher) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// put makes c the next change to take, now. It reports false if that is too much, and the
// watcher has ended. The mutex is held.
func (w *watcher) put(c *change, now time.Duration) bool {
	place, pending := w.places[c.about]
	if len(w.places) == 0 {
		w.unread = now
	}
	switch {
	case w.err != nil:
		return true
	case pending && w.pending[place-w.taken] == c:
		return true // it is reached by two of its paths
	case pending:
		w.pending[place-w.taken] = nil
	case len(w.places) >= mostPending && (now-w.unread > readTime || len(w.places) == mostAtAll):
		w.end(errTooSlow)
		return false
	case !w.query.MayKeep(1):
		w.end(errTooMuch)
		return false
	}
	if w.places == nil {
		w.places = make(map[subject]int)
	}
	if len(w.pending) > 2*len(w.places)+16 {
		w.compact()
	}
	w.places[c.about] = w.taken + len(w.pending)
	w.pending = append(w.pending, c)
	w.ring()
	return true
}

// end ends w for that reason, and keeps nothing for it. The mutex is held.
func (w *watcher) end(err error) {
	w.query.MayKeep(-len(w.places))
	w.err, w.pending, w.places = err, nil, nil
	w.ring()
}

// compact removes the places that later changes left empty.
func (w *watcher) compact() {
	kept := w.pending[:0]
	for _, c := range w.pending {
		if c != nil {
			w.places[c.about] = w.taken + len(kept)
			kept = append(kept, c)
		}
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// take moves the oldest changes to room. The mutex is held.
func (w *watcher) take(room []*change) []*change {
	n := 0
	for ; n < len(w.pending) && len(room) < mostTaken; n++ {
		if c := w.pending[n]; c != nil {
			room = append(room, c)
			delete(w.places, c.about)
		}
	}
	clear(w.pending[:n])
	w.pending, w.taken = w.pending[n:], w.taken+n
	if len(w.places) == 0 {
		if w.pending = w.pending[:0]; w.taken > keptRoom {
			w.pending, w.places = nil, nil // a map never shrinks
		}
		w.taken = 0
	}
	return room
}

// notifyWatchers passes an event on to those who watch what it is about, with a log as a part
// of n. The mutex is held.
func (k *Keeper) notifyWatchers(ev *table.Event, n *news) {
	if !k.watchers.MayWatch(ev.Ref) {
		return
	}
	c := k.changeOf(ev)
	if c == nil {
		return
	}
	for w := range k.watchers.Selecting(&c.status) {
		if c.number == 0 {
			k.changes++
			c.number, c.about = k.changes, subject{ev.Ref, ev.Path}
		}
		if k.log != nil {
			n.changes = append(n.changes, c)
			return
		}
		k.offer(w, c, k.command.At)
	}
}

// changeOf returns the change that an event tells of; nil if nobody can know any more.
func (k *Keeper) changeOf(ev *table.Event) *change {
	st, ok := lockkeeper.Status{}, false
	if ev.Path == "" {
		st, ok = k.table.Status(ev.Ref)
	} else if st, ok = k.table.Freeze(ev.Path); ev.Kind == table.Thawed || !ok {
		target := lockkeeper.Target{Path: ev.Path, Mode: lockkeeper.ModeExclusive}
		st = lockkeeper.Status{
			Ref: ev.Ref, State: lockkeeper.Ended, Reason: ev.Reason, Grants: []lockkeeper.Grant{{Target: target}},
		}
		ok = true
	}
	if !ok {
		return nil
	}
	return &change{status: st}
}

// offer gives a change to a watcher that selects it. The mutex is held.
func (k *Keeper) offer(w *watcher, c *change, now time.Duration) {
	if c.number > w.since && !w.put(c, now) {
		k.watchers.Remove(w)
	}
}

// publish gives changes that are safe to those who watch. The mutex is held.
func (k *Keeper) publish(changes []*change) {
	now := k.clock()
	for _, c := range changes {
		for w := range k.watchers.Selecting(&c.status) {
			k.offer(w, c, now)
		}
	}
}

// watch yields changes until ctx ends, or the watcher does.
func (k *Keeper) watch(ctx context.Context, w *watcher, yield statusFunc) {
	var room []*change
	for {
		changes, err := k.next(w, room[:0])
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		wanted := k.deliver(ctx, w.query, changes, yield)
		w.query.MayKeep(-len(changes))
		if !wanted {
			return
		}
		clear(changes) // nothing is kept alive by it
		if room = changes; len(changes) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes what is pending, as far as room goes.
func (k *Keeper) next(w *watcher, room []*change) ([]*change, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return nil, unavailable(errClosed)
	case k.record.broken != nil:
		return nil, k.record.broken
	case w.err != nil:
		return nil, w.err
	}
	w.unread = k.clock()
	return w.take(room), nil
}

// unwatch forgets a watcher; nil may be forgotten too.
func (k *Keeper) unwatch(w *watcher) {
	if w == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watchers.Remove(w)
	w.end(w.err)
}
