package sqllock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// How often a follower looks: soon after something happened here, else seldom.
const (
	watchPause = 50 * time.Millisecond
	watchIdle  = 500 * time.Millisecond
	watchBack  = 5 * time.Second // how long ago what ended may have ended to be told of
	// Where nothing has begun for so long, nothing has changed either, since transactions are
	// shorter. So it is enough to see that nothing begins, and to look now and then all the same.
	watchStill  = attemptBound + time.Second
	watchAnyway = 15 * time.Second
)

// stillness is what a look found out about whether anything happens in the database.
type stillness struct {
	joined int       // how many watchers there had been when all was looked at
	drawn  uint64    // each transaction that decides anything draws a number
	since  time.Time // when that was new
	looked time.Time // when all was looked at
}

// poller reads for all followers of this process at once, as long as there are any:
// thousands who follow a claim each, as by polls over HTTP, cost the database no more
// than one who follows all of those. The zero value has no followers.
type poller struct {
	mu       sync.Mutex // guards what follows
	watchers map[*watcher]struct{}
	joined   int           // how often somebody has begun to follow
	events   chan struct{} // something happened here, or there is one more follower
	ended    chan struct{} // closed when the goroutine that looks has ended; nil: there is none
}

// follower is one List that goes on.
type watcher struct {
	query  lockkeeper.Query
	wakeup chan struct{}
	latest atomic.Pointer[moment]
}

// ring has followers look soon.
func (l *poller) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events != nil {
		wake(l.events)
	}
}

// followed reports whether somebody follows claims here, and so wants to see ends of others' too.
func (e *Engine) watched() bool {
	e.poller.mu.Lock()
	defer e.poller.mu.Unlock()
	return len(e.poller.watchers) > 0
}

// join takes in a follower, and begins to look if nobody did.
func (e *Engine) join(q lockkeeper.Query) *watcher {
	l, f := &e.poller, &watcher{query: q, wakeup: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers == nil {
		l.watchers, l.events = make(map[*watcher]struct{}), make(chan struct{}, 1)
	}
	l.watchers[f] = struct{}{}
	l.joined++
	if l.ended == nil && e.closing.Err() == nil {
		l.ended = make(chan struct{})
		go e.pollForWatchers(l.ended)
	}
	wake(l.events)
	return f
}

func (l *poller) leave(f *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, f)
}

// wait waits until nobody looks any more, after the engine was closed.
func (l *poller) wait() {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// all are the followers, where they look, and how many there have been. If there are none, who
// asks ends.
func (l *poller) all() (watchers []*watcher, s *scope, joined int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = newScope(usual)
	for f := range l.watchers { // order does not matter
		watchers = append(watchers, f)
		s.sees(f.query)
	}
	if len(watchers) == 0 {
		l.ended = nil
	}
	return watchers, s, l.joined
}

// pollForWatchers reads again and again for all followers, until there are none.
func (e *Engine) pollForWatchers(ended chan struct{}) {
	defer close(ended)
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last stillness
	for e.closing.Err() == nil {
		watchers, s, joined := e.poller.all()
		if len(watchers) == 0 {
			return
		}
		e.announce(e.cutting)
		if joined == last.joined && e.still(&last) {
			e.pauseWatchers(pause)
			continue
		}
		last.joined = joined
		began := time.Now()
		m, err := e.read(e.cutting, s, watchBack)
		if err != nil {
			m = &moment{began: began, err: err}
		}
		for _, f := range watchers {
			f.latest.Store(m)
			wake(f.wakeup)
		}
		e.pauseWatchers(pause)
	}
}

// still reports whether nothing can have changed since all was looked at.
func (e *Engine) still(last *stillness) bool {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	var drawn uint64
	err := e.reading(ctx, func(l link) error { return l.send(ctx, []statement{e.dialect.drawn(&drawn)}) })
	now := time.Now()
	if err != nil || drawn != last.drawn {
		last.drawn, last.since = drawn, now
	}
	if now.Sub(last.since) > watchStill && now.Sub(last.looked) < watchAnyway {
		return true
	}
	last.looked = now
	return false
}

// pauseWatchers waits until it is worth to look again: at once if something happens here,
// but not more often than watchPause.
func (e *Engine) pauseWatchers(pause *time.Timer) {
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

// next waits for a moment that began after since; nil when ctx, or the engine, has ended.
func (f *watcher) next(ctx, closing context.Context, since time.Time) *moment {
	for {
		select {
		case <-f.wakeup:
		case <-ctx.Done():
			return nil
		case <-closing.Done():
			return nil
		}
		if m := f.latest.Load(); !m.began.Before(since) {
			return m
		}
	}
}

// follow yields what q selects, and goes on with what changes of it.
func (e *Engine) watch(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	since := time.Now()
	f := e.join(q)
	defer e.poller.leave(f)
	reported := watching.NewReported()
	seen := make(map[lockkeeper.Ref]uint64) // ends that it has seen
	for first := true; ; first = false {
		m := f.next(ctx, e.closing, since)
		switch {
		case m == nil && ctx.Err() == nil:
			yield(lockkeeper.Status{}, unavailable(calls.ErrClosed))
			return
		case m == nil:
			return
		case m.err != nil:
			yield(lockkeeper.Status{}, m.err)
			return
		}
		all, ended := m.pick(q)
		sees := make(map[lockkeeper.Ref]uint64, len(ended))
		ended = slices.DeleteFunc(ended, func(st lockkeeper.Status) bool {
			sees[st.Ref] = st.Change
			return first || seen[st.Ref] == st.Change || m.past[st.Ref] && !reported.Live(&st)
		})
		seen = sees
		if !reported.Changes(all, ended, yield) {
			return
		}
	}
}

// announcement is until when this process has told that it follows what happens.
type announcement struct {
	mu    sync.Mutex
	until time.Time
}

const (
	watchLease  = 10 * time.Second
	watchMargin = 2 * time.Second // before its end it is not relied on
)

// announce tells those who end claims that somebody follows here, so that they leave rows
// of them. When nothing was told before, it waits for all transactions that may not
// have heard of it. If it can't be told, some claims end without a reason.
func (e *Engine) announce(ctx context.Context) {
	a := &e.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	left := time.Until(a.until)
	if left > watchLease/2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptBound)
	defer cancel()
	d, began := e.dialect, time.Now()
	err := d.with(ctx, e.db.pool, func(l link) error {
		var at reading
		all := d.begin(patience{latchPatience, idleFirst})
		if left < watchMargin {
			all = append(all, d.latch([]latch{{"", true}})...)
		}
		if err := l.send(ctx, append(all, d.clock(&at, false)...)); err != nil {
			return err
		}
		return l.send(ctx, []statement{d.announceWatcher(e.process, at.now+watchLease), d.commit()})
	})
	if err == nil {
		a.until = began.Add(watchLease)
	}
}
