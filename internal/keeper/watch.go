package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A watcher is one List that continues with every change of a selected claim or freeze. It keeps
// the latest unread change of each, in the order of the changes, so an end arrives before the grant
// that it made possible.
//
// The keeper ends a watcher that has not read for readTime and has more than mostPending unread
// changes; its client must call List again. A watcher that reads may keep up to mostAtAll for a
// moment, because one step can change all claims of a session.
type watcher struct {
	query  lockkeeper.Query
	since  uint64        // its list includes the changes up to this one
	wakeup chan struct{} // filled when pending gets a change or the watcher ends

	// Guarded by publisher.mu.
	pending   []*change       // unread, oldest first; nil: replaced by a later change
	unread    time.Duration   // the later of the last read and the arrival of the first unread change
	taken     int             // number of entries removed from the front of pending
	positions map[subject]int // taken + index in pending
	err       error           // why it ended
}

// Bounds of the changes kept for a watcher.
const (
	mostPending = 4096        // changed claims, if it has not read for readTime
	mostAtAll   = 1 << 17     // changed claims, in any case
	readTime    = time.Second // a watcher that reads does so within this time
	mostTaken   = 256         // changes per read
	keptRoom    = 1024        // entries whose memory an idle watcher keeps
)

var errTooSlow error = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: fmt.Sprintf("the watcher is too slow: more than %d claims changed since it read; list again", mostPending),
}

var (
	errTooMuch error = &lockkeeper.Error{
		Err: lockkeeper.ErrUnavailable,
		Detail: "the watcher is too slow: too many changes wait for the watchers of its identity; " +
			"read faster, watch less, or list again",
	}
	errTooLong error = &lockkeeper.Error{
		Err:    lockkeeper.ErrDenied,
		Reason: lockkeeper.Quota,
		Detail: "too many statuses wait until the lists of this identity are read: read those first, or try again",
	}
)

// A subject is a claim, or one path of a freeze.
type subject struct {
	ref  lockkeeper.Ref
	path lockkeeper.Path
}

// A change is the status of a claim, or of a freeze, after the step that changed it. Its watchers
// share it.
type change struct {
	about  subject
	number uint64 // rises with every change that has watchers
	status lockkeeper.Status
	evidence
}

// wake wakes the reader.
func (w *watcher) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// put adds c as the latest change of its subject. If c would exceed a bound, put ends the watcher
// and returns false. The caller holds the mutex.
func (w *watcher) put(c *change, now time.Duration) bool {
	position, pending := w.positions[c.about]
	if len(w.positions) == 0 {
		w.unread = now
	}
	switch {
	case w.err != nil:
		return true
	case pending && w.pending[position-w.taken] == c:
		return true // the index found w by two paths of the claim
	case pending:
		w.pending[position-w.taken] = nil
	case len(w.positions) >= mostPending && (now-w.unread > readTime || len(w.positions) == mostAtAll):
		w.end(errTooSlow)
		return false
	case !w.query.MayKeep(1):
		w.end(errTooMuch)
		return false
	}
	if w.positions == nil {
		w.positions = make(map[subject]int)
	}
	if len(w.pending) > 2*len(w.positions)+16 {
		w.compact()
	}
	w.positions[c.about] = w.taken + len(w.pending)
	w.pending = append(w.pending, c)
	w.wake()
	return true
}

// end ends w with err, and drops its unread changes. The caller holds the mutex.
func (w *watcher) end(err error) {
	w.query.MayKeep(-len(w.positions))
	w.err, w.pending, w.positions = err, nil, nil
	w.wake()
}

// compact removes the entries of pending that later changes replaced.
func (w *watcher) compact() {
	kept := w.pending[:0]
	for _, c := range w.pending {
		if c != nil {
			w.positions[c.about] = w.taken + len(kept)
			kept = append(kept, c)
		}
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// take moves the oldest changes to room, at most mostTaken. The caller holds the mutex.
func (w *watcher) take(room []*change) []*change {
	n := 0
	for ; n < len(w.pending) && len(room) < mostTaken; n++ {
		if c := w.pending[n]; c != nil {
			room = append(room, c)
			delete(w.positions, c.about)
		}
	}
	clear(w.pending[:n])
	w.pending, w.taken = w.pending[n:], w.taken+n
	if len(w.positions) == 0 {
		if w.pending = w.pending[:0]; w.taken > keptRoom {
			w.pending, w.positions = nil, nil // a map never shrinks
		}
		w.taken = 0
	}
	return room
}

// notifyWatchers gives the change of an event to the watchers that select it. With a log it adds
// the change to n instead; publish gives it to the watchers when the step is safe. The caller holds
// the mutex.
func (p *publisher) notifyWatchers(ev *table.Event, n *news, now time.Duration) {
	if !p.watchers.MayWatch(ev.Ref) {
		return
	}
	c := p.changeOf(ev)
	if c == nil {
		return
	}
	for w := range p.watchers.Selecting(&c.status) {
		if c.number == 0 {
			p.changes++
			c.number, c.about = p.changes, subject{ev.Ref, ev.Path}
		}
		if p.log != nil {
			n.changes = append(n.changes, c)
			return
		}
		p.offer(w, c, now)
	}
}

// changeOf returns the change of an event; nil if the table no longer knows its subject.
func (p *publisher) changeOf(ev *table.Event) *change {
	st, ok := lockkeeper.Status{}, false
	if ev.Path == "" {
		st, ok = p.table.Status(ev.Ref)
	} else if st, ok = p.table.Freeze(ev.Path); ev.Kind == table.Thawed || !ok {
		target := lockkeeper.Target{Path: ev.Path, Mode: lockkeeper.ModeExclusive}
		st = lockkeeper.Status{
			Ref: ev.Ref, State: lockkeeper.Ended, Reason: ev.Reason, Grants: []lockkeeper.Grant{{Target: target}},
		}
		ok = true
	}
	if !ok {
		return nil
	}
	st.LogIndex = p.index
	return &change{status: st}
}

// offer gives a change to a watcher that selects it. The caller holds the mutex.
func (p *publisher) offer(w *watcher, c *change, now time.Duration) {
	if c.number > w.since && !w.put(c, now) {
		p.watchers.Remove(w)
	}
}

// publish gives safe changes to their watchers. The caller holds the mutex.
func (p *publisher) publish(changes []*change) {
	now := p.clock()
	for _, c := range changes {
		for w := range p.watchers.Selecting(&c.status) {
			p.offer(w, c, now)
		}
	}
}

// watch yields changes until ctx or the watcher ends.
func (p *publisher) watch(ctx context.Context, w *watcher, yield statusFunc) {
	var room []*change
	for {
		changes, err := p.next(w, room[:0])
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		wanted := p.deliver(ctx, w.query, changes, yield)
		w.query.MayKeep(-len(changes))
		if !wanted {
			return
		}
		clear(changes) // for the garbage collector
		if room = changes; len(changes) > 0 {
			continue
		}
		select {
		case <-w.wakeup:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the oldest unread changes.
func (p *publisher) next(w *watcher, room []*change) ([]*change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, unavailable(errClosed)
	case p.record.broken != nil:
		return nil, p.record.broken
	case w.err != nil:
		return nil, w.err
	}
	w.unread = p.clock()
	return w.take(room), nil
}

// unwatch removes a watcher; w may be nil.
func (p *publisher) unwatch(w *watcher) {
	if w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers.Remove(w)
	w.end(w.err)
}
