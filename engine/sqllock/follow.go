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
	followPause = 50 * time.Millisecond
	followIdle  = 500 * time.Millisecond
	followBack  = 5 * time.Second // how long ago what ended may have ended to be told of
	// Where nothing has begun for so long, nothing has changed either, since transactions are
	// shorter. So it is enough to see that nothing begins, and to look now and then all the same.
	followStill  = attemptBound + time.Second
	followAnyway = 15 * time.Second
)

// stillness is what a look found out about whether anything happens in the database.
type stillness struct {
	joined int       // how many followers there had been when all was looked at
	drawn  uint64    // each transaction that decides anything draws a number
	since  time.Time // when that was new
	looked time.Time // when all was looked at
}

// lookout reads for all followers of this process at once, as long as there are any:
// thousands who follow a claim each, as by polls over HTTP, cost the database no more
// than one who follows all of those. The zero value has no followers.
type lookout struct {
	mu        sync.Mutex // guards what follows
	followers map[*follower]struct{}
	joined    int           // how often somebody has begun to follow
	bell      chan struct{} // something happened here, or there is one more follower
	ended     chan struct{} // closed when the goroutine that looks has ended; nil: there is none
}

// follower is one List that goes on.
type follower struct {
	query  lockkeeper.Query
	bell   chan struct{}
	latest atomic.Pointer[moment]
}

// ring has followers look soon.
func (l *lookout) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bell != nil {
		ring(l.bell)
	}
}

// followed reports whether somebody follows claims here, and so wants to see ends of others' too.
func (e *Engine) followed() bool {
	e.lookout.mu.Lock()
	defer e.lookout.mu.Unlock()
	return len(e.lookout.followers) > 0
}

// join takes in a follower, and begins to look if nobody did.
func (e *Engine) join(q lockkeeper.Query) *follower {
	l, f := &e.lookout, &follower{query: q, bell: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers == nil {
		l.followers, l.bell = make(map[*follower]struct{}), make(chan struct{}, 1)
	}
	l.followers[f] = struct{}{}
	l.joined++
	if l.ended == nil && e.closing.Err() == nil {
		l.ended = make(chan struct{})
		go e.lookOut(l.ended)
	}
	ring(l.bell)
	return f
}

func (l *lookout) leave(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followers, f)
}

// wait waits until nobody looks any more, after the engine was closed.
func (l *lookout) wait() {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// all are the followers, where they look, and how many there have been. If there are none, who
// asks ends.
func (l *lookout) all() (followers []*follower, s *scope, joined int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s = newScope(usual)
	for f := range l.followers { // order does not matter
		followers = append(followers, f)
		s.sees(f.query)
	}
	if len(followers) == 0 {
		l.ended = nil
	}
	return followers, s, l.joined
}

// lookOut reads again and again for all followers, until there are none.
func (e *Engine) lookOut(ended chan struct{}) {
	defer close(ended)
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last stillness
	for e.closing.Err() == nil {
		followers, s, joined := e.lookout.all()
		if len(followers) == 0 {
			return
		}
		e.announce(e.cutting)
		if joined == last.joined && e.still(&last) {
			e.restFollowing(pause)
			continue
		}
		last.joined = joined
		began := time.Now()
		m, err := e.read(e.cutting, s, followBack)
		if err != nil {
			m = &moment{began: began, err: err}
		}
		for _, f := range followers {
			f.latest.Store(m)
			ring(f.bell)
		}
		e.restFollowing(pause)
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
	if now.Sub(last.since) > followStill && now.Sub(last.looked) < followAnyway {
		return true
	}
	last.looked = now
	return false
}

// restFollowing waits until it is worth to look again: at once if something happens here,
// but not more often than followPause.
func (e *Engine) restFollowing(pause *time.Timer) {
	pause.Reset(followPause)
	select {
	case <-pause.C:
	case <-e.closing.Done():
		return
	}
	pause.Reset(followIdle - followPause)
	select {
	case <-e.lookout.bell:
	case <-pause.C:
	case <-e.closing.Done():
	}
}

// next waits for a moment that began after since; nil when ctx, or the engine, has ended.
func (f *follower) next(ctx, closing context.Context, since time.Time) *moment {
	for {
		select {
		case <-f.bell:
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
func (e *Engine) follow(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	since := time.Now()
	f := e.join(q)
	defer e.lookout.leave(f)
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
	followLease  = 10 * time.Second
	followMargin = 2 * time.Second // before its end it is not relied on
)

// announce tells those who end claims that somebody follows here, so that they leave rows
// of them. When nothing was told before, it waits for all transactions that may not
// have heard of it. If it can't be told, some claims end without a reason.
func (e *Engine) announce(ctx context.Context) {
	a := &e.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	left := time.Until(a.until)
	if left > followLease/2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptBound)
	defer cancel()
	d, began := e.dialect, time.Now()
	err := d.with(ctx, e.db.pool, func(l link) error {
		var at reading
		all := d.begin(patience{latchPatience, idleFirst})
		if left < followMargin {
			all = append(all, d.latch([]latch{{"", true}})...)
		}
		if err := l.send(ctx, append(all, d.clock(&at, false)...)); err != nil {
			return err
		}
		return l.send(ctx, []statement{d.follow(e.process, at.now+followLease), d.commit()})
	})
	if err == nil {
		a.until = began.Add(followLease)
	}
}
