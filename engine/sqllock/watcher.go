package sqllock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// How often the poller reads: soon after an event of this process, else rarely.
const (
	watchPause = 50 * time.Millisecond
	watchIdle  = 500 * time.Millisecond
	watchBack  = 5 * time.Second // how old an end may be that the poller reads
	// If no transaction has begun for so long, nothing changes, since transactions are shorter.
	// Then the poller only reads whether one begins, and everything every watchAnyway.
	watchStill  = attemptBound + time.Second
	watchAnyway = 15 * time.Second
)

// stillness is the state of [Engine.still]: what shows that nothing happens in the database.
type stillness struct {
	joined int       // poller.joined at the last read
	drawn  uint64    // every transaction that decides anything draws numbers
	since  time.Time // when drawn changed
	looked time.Time // when everything was read
}

// poller reads for all watchers of this process at once, while there are any: thousands of watchers
// of one claim each, as by polls over HTTP, cost the database no more than one watcher of all those
// claims. The zero value has no watchers.
type poller struct {
	mu       sync.Mutex // guards all below
	watchers map[*watcher]struct{}
	joined   int           // number of watchers that ever joined
	events   chan struct{} // filled by events of this process and new watchers
	ended    chan struct{} // closed when the poller has ended; nil: it does not run
}

// watcher is one List with Follow.
type watcher struct {
	query  lockkeeper.Query
	wakeup chan struct{}
	latest atomic.Pointer[moment]
}

// wake makes the poller read soon.
func (l *poller) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events != nil {
		wake(l.events)
	}
}

// watched reports whether there are watchers here, which need the ends of claims of other
// processes.
func (e *Engine) watched() bool {
	e.poller.mu.Lock()
	defer e.poller.mu.Unlock()
	return len(e.poller.watchers) > 0
}

// join adds a watcher, and starts the poller if it does not run.
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

// leave removes a watcher.
func (l *poller) leave(f *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watchers, f)
}

// wait waits for the end of the poller, after the engine was closed.
func (l *poller) wait() {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// all returns the watchers, the scope that they watch, and how many ever joined. If there are none,
// the poller must end.
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

// pollForWatchers reads again and again for all watchers, until there are none.
func (e *Engine) pollForWatchers(ended chan struct{}) {
	defer close(ended)
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last stillness
	var ending map[string][]lockkeeper.Ref
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
		e.sweepEnding(ending, m.ending)
		ending = m.ending
		for _, f := range watchers {
			f.latest.Store(m)
			wake(f.wakeup)
		}
		e.pauseWatchers(pause)
	}
}

// sweepEnding ends the claims that are ending and were not before, so that watchers learn why they
// ended. If that fails, the clean-up of some process does it later.
func (e *Engine) sweepEnding(before, ending map[string][]lockkeeper.Ref) {
	for id := range ending { // order does not matter: each by itself
		if _, swept := before[id]; !swept {
			e.sweep(id)
		}
	}
}

// still reports whether nothing can have changed since the last read.
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

// pauseWatchers waits until the next read is due: soon after an event of this process, but not more
// often than watchPause.
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

// watch yields the statuses that q selects, and then their changes.
func (e *Engine) watch(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	since := time.Now()
	f := e.join(q)
	defer e.poller.leave(f)
	reported := watching.NewReported()
	seen := make(map[lockkeeper.Ref]uint64) // ends that it has received
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
		all = append(all, reported.Latest(slices.Concat(slices.Collect(maps.Values(m.ending))...))...)
		lost, ending, err := e.readEnds(ctx, reported.Missing(all, ended))
		switch {
		case err != nil && ctx.Err() == nil:
			yield(lockkeeper.Status{}, err)
			return
		case err != nil:
			return
		}
		all = append(all, reported.Latest(ending)...)
		if !reported.Changes(all, append(ended, lost...), yield) {
			return
		}
	}
}

// mostEnds is how many rows readEnds reads with one statement.
const mostEnds = 1000

// readEnds returns why claims ended that one moment no longer shows: those that ended more than
// watchBack before it, or that a slow watcher missed. The rows of ended claims stay for keepEnded.
// ending has the claims whose rows have not ended.
func (e *Engine) readEnds(ctx context.Context, refs []lockkeeper.Ref) (ended []lockkeeper.Status,
	ending []lockkeeper.Ref, err error) {
	for some := range slices.Chunk(refs, mostEnds) {
		found, now, err := e.readRows(ctx, some)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range found {
			if c.ClaimRecord.State == lockkeeper.Ended {
				ended = append(ended, c.EndedStatus(now))
			} else {
				ending = append(ending, c.Ref)
			}
		}
	}
	return ended, ending, nil
}

// readRows reads the rows of claims, and the time.
func (e *Engine) readRows(ctx context.Context, refs []lockkeeper.Ref) (found []*rows.Claim, now time.Duration,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptBound)
	defer cancel()
	var at reading
	keep := func(_ int, c *rows.Claim) { found = append(found, c) }
	err = e.reading(ctx, func(l link) error {
		found = nil
		return l.send(ctx, append(e.dialect.clock(&at, false), e.dialect.claims(&search{refs: refs}, keep)))
	})
	if err != nil {
		return nil, 0, e.unavailableBecause(err, nil)
	}
	return found, at.now, nil
}

// announcement is until when this process has announced that it has watchers.
type announcement struct {
	mu    sync.Mutex
	until time.Time
}

const (
	watchLease  = 30 * time.Second // half of it is longer than a slow read
	watchMargin = 2 * time.Second  // an announcement with less left does not count
)

// announce writes that there are watchers here, so that other processes keep the rows of ended
// claims. The first announcement waits for all transactions that may not have seen it. If it fails,
// some claims end without a reason.
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
