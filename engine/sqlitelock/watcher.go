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

// watchPause is the least time between two reads of one watcher, so that it does not read for every
// single change.
const watchPause = 40 * time.Millisecond

// List implements lockkeeper.Engine. A watcher receives the difference to its last read, at most
// some twenty times a second. It may miss states in between, but never the last state of a claim.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return watching.List(ctx, q, e.list, e.watch)
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

// Bounds of the ends kept for a watcher that does not read: beyond them it ends.
const (
	mostEnded = 4096        // claims that ended since it read, if it has not for readTime
	mostAtAll = 1 << 17     // claims that ended since it read, in any case: one step can end many
	readTime  = time.Second // a watcher that keeps up reads within this time
)

var errTooSlow error = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: fmt.Sprintf("the watcher is too slow: more than %d claims have ended since it read; begin again", mostEnded),
}

// watcher is one List with Follow.
type watcher struct {
	wakeup  chan struct{}
	waiting atomic.Bool // it has shown blockers of a claim, and any change may alter them

	mu    sync.Mutex
	ended []numberedEnd // ended since its last read
	first time.Time     // when the first of them ended
	slow  bool          // too many ended
}

// A numberedEnd is the end of a claim or freeze. The engine numbers all ends in their order.
type numberedEnd struct {
	number uint64
	lockkeeper.Status
}

// addEnded adds an ended claim, and wakes the watcher.
func (f *watcher) addEnded(number uint64, ended *lockkeeper.Status) {
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
		f.ended = append(f.ended, numberedEnd{number, *ended})
	}
	f.mu.Unlock()
	f.wake()
}

// deliverEnds numbers ended claims and passes them to their watchers. It must precede the answers of
// the transaction that found them: the rows that a watcher has read do not say why a claim is gone.
func (e *Engine) deliverEnds(n *news) {
	first := e.ends + 1
	e.ends += uint64(len(n.ended))
	if len(n.ended) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watchers.Len() == 0 {
		return
	}
	for i := range n.ended {
		for f := range e.watchers.Selecting(&n.ended[i]) {
			f.addEnded(first+uint64(i), &n.ended[i])
		}
	}
}

// latestEnd returns the number of the latest end that the rows show at this moment of the
// transaction. deliverEnds numbers the ends of other processes before those of its own steps.
func (tx *transaction) latestEnd() uint64 {
	return tx.e.ends + uint64(len(tx.external.ended)+len(tx.news.ended))
}

// notifyWatchers wakes the watchers that a change concerns.
func (e *Engine) notifyWatchers(n *news) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range n.changed {
		for f := range e.watchers.Selecting(&n.changed[i]) {
			f.wake()
		}
	}
	for f := range e.watchers.All() {
		if n.anything || f.waiting.Load() {
			f.wake()
		}
	}
}

func (f *watcher) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default:
	}
}

// takeEnded returns the ends since the last call, up to the one with the number latest. Later ends
// stay for the next read: the rows already read still have those claims.
func (f *watcher) takeEnded(latest uint64) ([]lockkeeper.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slow {
		return nil, errTooSlow
	}
	var ended []lockkeeper.Status
	for len(f.ended) > 0 && f.ended[0].number <= latest {
		ended = append(ended, f.ended[0].Status)
		f.ended = f.ended[1:]
	}
	if len(f.ended) == 0 {
		f.ended = nil
	}
	began := time.Now()
	f.first = began // the rest waits for the next read
	return ended, nil
}

// read returns the claims that q selects, and those that ended since the last read of f, as of the
// same moment.
func (e *Engine) read(ctx context.Context, q lockkeeper.Query, f *watcher) (all, ended []lockkeeper.Status, err error) {
	var found []lockkeeper.Status
	var latest uint64
	if err := e.call(ctx, true, func(tx *transaction) {
		found, latest = slices.Collect(e.shown().List(q)), tx.latestEnd()
	}); err != nil {
		return nil, nil, err
	}
	ended, err = f.takeEnded(latest)
	return found, ended, err
}

// watched returns the number of watchers.
func (e *Engine) watched() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watchers.Len()
}

// waits reports whether st may have blockers.
func waits(st lockkeeper.Status) bool { return st.State == lockkeeper.Waiting || st.Converting }

// watch yields the statuses that q selects, and then their changes.
func (e *Engine) watch(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	f := &watcher{wakeup: make(chan struct{}, 1)}
	e.mu.Lock()
	e.watchers.Add(q, f)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.watchers.Remove(f)
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
		all, ended, err := e.read(ctx, q, f)
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
		pause.Reset(watchPause)
		select {
		case <-f.wakeup:
		case <-ctx.Done():
			return
		}
	}
}
