package watching

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// How often a Poller reads: after Wake at most once per pollPause, else once per pollIdle.
const (
	pollPause = 50 * time.Millisecond
	pollIdle  = 500 * time.Millisecond
)

// A Read reads once what watchers with these queries watch. joined says that a watcher has come
// since the last call. A Read returns nil if nothing can have changed since then; the watchers keep
// the result that they have. Results are shared by watchers, so a result is not changed any more.
type Read[R any] func(queries []lockkeeper.Query, joined bool) *R

// A Poller reads again and again for all watchers of one engine, while there are any. So thousands
// of watchers of one claim each, as by polls over HTTP, cost no more reads than one watcher of all
// those claims. R is the result of a read. A Poller is safe for concurrent use.
//
//	     Join of the first watcher
//	idle ────────────────────────> reading ── every pollIdle, or soon after Wake ──> reading
//	  ^                              │
//	  └── the last watcher left, or the engine was closed
type Poller[R any] struct {
	closing context.Context
	begin   func() Read[R]
	wakeup  chan struct{} // filled when a read is due

	mu       sync.Mutex // guards all below
	watchers map[*Watcher[R]]struct{}
	joined   bool          // a watcher has come since the last read
	ended    chan struct{} // closed when the goroutine has ended; nil: there is none
}

// NewPoller returns a Poller without watchers. closing ends when the engine is closed. begin is
// called whenever the first watcher comes; its Read is called by one goroutine at a time.
func NewPoller[R any](closing context.Context, begin func() Read[R]) *Poller[R] {
	return &Poller[R]{
		closing:  closing,
		begin:    begin,
		wakeup:   make(chan struct{}, 1),
		watchers: make(map[*Watcher[R]]struct{}),
	}
}

// A Watcher is one List with Query.Follow. One goroutine uses it.
type Watcher[R any] struct {
	poller *Poller[R]
	query  lockkeeper.Query
	wakeup chan struct{} // filled when latest changes
	latest atomic.Pointer[R]
}

// fill fills a channel that has room for one value.
func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Join adds a watcher of what q selects. The caller must call Leave.
func (p *Poller[R]) Join(q lockkeeper.Query) *Watcher[R] {
	w := &Watcher[R]{poller: p, query: q, wakeup: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[w], p.joined = struct{}{}, true
	if p.ended == nil && p.closing.Err() == nil {
		p.ended = make(chan struct{})
		go p.poll(p.ended)
	}
	fill(p.wakeup)
	return w
}

// Leave removes the watcher.
func (w *Watcher[R]) Leave() {
	p := w.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.watchers, w); len(p.watchers) == 0 {
		fill(p.wakeup) // so that the goroutine ends soon
	}
}

// Next waits for a result that the watcher has not received; of several, it returns the latest. Each
// was read after the watcher joined. Next returns nil when ctx has ended, or the engine was closed.
func (w *Watcher[R]) Next(ctx context.Context) *R {
	select {
	case <-w.wakeup:
		return w.latest.Load()
	case <-ctx.Done():
	case <-w.poller.closing.Done():
	}
	return nil
}

// Wake makes the Poller read soon, if there are watchers.
func (p *Poller[R]) Wake() { fill(p.wakeup) }

// Watched reports whether there are watchers.
func (p *Poller[R]) Watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers) > 0
}

// Wait waits until no Read runs any more. The engine must be closed, or have no watchers.
func (p *Poller[R]) Wait() {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// next returns the watchers of the next read, and their queries. If there are none, the goroutine
// must end: Join starts the next one.
func (p *Poller[R]) next() (watchers []*Watcher[R], queries []lockkeeper.Query, joined bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers { // order does not matter
		watchers, queries = append(watchers, w), append(queries, w.query)
	}
	if len(watchers) == 0 {
		p.ended = nil
	}
	joined, p.joined = p.joined, false
	return watchers, queries, joined
}

// poll reads for the watchers until there are none, or the engine is closed.
func (p *Poller[R]) poll(ended chan struct{}) {
	defer close(ended)
	pause := time.NewTimer(0)
	defer pause.Stop()
	read := p.begin()
	for p.closing.Err() == nil {
		watchers, queries, joined := p.next()
		if len(watchers) == 0 {
			return
		}
		if result := read(queries, joined); result != nil {
			for _, w := range watchers {
				w.latest.Store(result)
				fill(w.wakeup)
			}
		}
		p.pause(pause)
	}
}

// pause waits until the next read is due.
func (p *Poller[R]) pause(timer *time.Timer) {
	timer.Reset(pollPause)
	select {
	case <-timer.C:
	case <-p.closing.Done():
		return
	}
	timer.Reset(pollIdle - pollPause)
	select {
	case <-p.wakeup:
	case <-timer.C:
	case <-p.closing.Done():
	}
}
