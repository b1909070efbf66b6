package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// How often the poller reads: soon after a message or a call of this process, else rarely.
const (
	watchPause = 50 * time.Millisecond
	watchIdle  = 500 * time.Millisecond
)

// poller reads for all watchers of this engine at once, while there are any. The zero value has no
// watchers.
type poller struct {
	mu       sync.Mutex // guards all below
	watchers map[*watcher]struct{}
	events   chan struct{} // filled by messages and new watchers; nil before the first watcher
	ended    chan struct{} // closed when the poller has ended; nil: it does not run
}

// watcher is one List with Follow.
type watcher struct {
	only   string        // the session that it watches; "" for all
	wakeup chan struct{} // filled when latest changes
	latest atomic.Pointer[moment]
}

// moment is the result of one read.
type moment struct {
	began  time.Time
	claims []*seen
	change uint64
	err    error
}

// wake makes the poller read soon.
func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events != nil {
		fill(p.events)
	}
}

func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join adds a watcher, and starts the poller if it does not run.
func (e *Engine) join(q lockkeeper.Query) *watcher {
	p, w := &e.poller, &watcher{only: onlySession(q), wakeup: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers == nil {
		p.watchers, p.events = make(map[*watcher]struct{}), make(chan struct{}, 1)
	}
	p.watchers[w] = struct{}{}
	if p.ended == nil && e.closing.Err() == nil {
		p.ended = make(chan struct{})
		go e.poll(p.ended)
	}
	fill(p.events)
	return w
}

// leave removes a watcher, and lets a poller without watchers end.
func (p *poller) leave(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
	fill(p.events)
}

// wait waits for the end of the poller, after the engine was closed.
func (p *poller) wait() {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// all returns the watchers, and the session that they all watch; "" if they watch several. If there
// are none, the poller must end.
func (p *poller) all() (watchers []*watcher, only string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		if len(watchers) == 0 {
			only = w.only
		} else if w.only != only {
			only = ""
		}
		watchers = append(watchers, w)
	}
	if len(watchers) == 0 {
		p.ended = nil
	}
	return watchers, only
}

// poll reads again and again for all watchers, until there are none or the engine is closed.
func (e *Engine) poll(ended chan struct{}) {
	defer close(ended)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for e.closing.Err() == nil {
		watchers, only := e.poller.all()
		if len(watchers) == 0 {
			return
		}
		m := &moment{began: time.Now()}
		readings, err := e.read(e.closing, only)
		if err != nil {
			m.err = err
		} else {
			m.claims, m.change = merge(readings), changeOf(readings)
		}
		for _, w := range watchers {
			w.latest.Store(m)
			fill(w.wakeup)
		}
		e.pausePoller(pause)
	}
}

// pausePoller waits until the next read is due.
func (e *Engine) pausePoller(pause *time.Timer) {
	pause.Reset(watchPause)
	select {
	case <-pause.C:
	case <-e.closing.Done():
		return
	}
	pause.Reset(watchIdle - watchPause)
	select {
	case <-e.poller.events:
	case <-pause.C:
	case <-e.closing.Done():
	}
}

// next waits for a moment that began after since. closed is true if the engine was closed; m is nil
// then, and when ctx has ended.
func (w *watcher) next(ctx, closing context.Context, since time.Time) (m *moment, closed bool) {
	for {
		select {
		case <-w.wakeup:
		case <-ctx.Done():
			return nil, false
		case <-closing.Done():
			return nil, true
		}
		if m := w.latest.Load(); !m.began.Before(since) {
			return m, false
		}
	}
}

// follow yields the claims that q selects, and then their changes.
func (e *Engine) follow(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	since := time.Now()
	w := e.join(q)
	defer e.poller.leave(w)
	f := newFollower(q)
	for {
		m, closed := w.next(ctx, e.closing, since)
		switch {
		case closed:
			yield(lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errClosed})
			return
		case m == nil:
			return
		case m.err != nil:
			yield(lockkeeper.Status{}, m.err)
			return
		}
		if !f.report(m, yield) {
			return
		}
	}
}

// follower finds what one watcher has not received yet.
type follower struct {
	query    lockkeeper.Query
	reported *watching.Reported
	last     map[lockkeeper.Ref]lockkeeper.Status // the live claims of the last moment
	over     map[lockkeeper.Ref]bool              // the ended claims of the last moment; nil before the first
}

func newFollower(q lockkeeper.Query) *follower {
	return &follower{query: q, reported: watching.NewReported(), last: make(map[lockkeeper.Ref]lockkeeper.Status)}
}

// report yields the differences between m and the moment before. It returns false if yield did.
func (f *follower) report(m *moment, yield func(lockkeeper.Status, error) bool) bool {
	wide := f.query
	wide.Meets = "" // a server may have forgotten the paths of an ended claim
	live, _ := pick(m.claims, f.query, m.change)
	_, tombstones := pick(m.claims, wide, m.change)
	over := make(map[lockkeeper.Ref]bool, len(tombstones))
	var news []lockkeeper.Status
	for _, st := range tombstones {
		over[st.Ref] = true
		before, known := f.last[st.Ref]
		if len(st.Grants) == 0 {
			st.Grants, st.Label, st.Inside, st.Fence = before.Grants, before.Label, before.Inside, before.Fence
		}
		if isNew := f.over != nil && !f.over[st.Ref]; (known || isNew) && f.query.Selects(&st) {
			news = append(news, st)
		}
	}
	f.over = over
	clear(f.last)
	for _, st := range live {
		f.last[st.Ref] = st
	}
	return f.reported.Changes(live, news, func(st lockkeeper.Status, err error) bool {
		if st.State == lockkeeper.Ended {
			st.Change = max(st.Change, m.change) // also if its end is not known
		}
		return yield(st, err)
	})
}
