package httpapi

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Limits of a feed.
const (
	maxEvents     = 16_384
	maxEventBytes = 16 << 20
	mostRead      = 256                    // events that a stream reads at a time
	linger        = 10 * time.Minute       // between its last stream and its end, so that a client can resume
	underWay      = 100 * time.Millisecond // an engine without changes counts as followed after that time
)

// A feed follows the gate's engine once for all streams, and keeps the latest changes, so that
// clients can resume. It follows from its first stream until linger after its last one. It is safe
// for concurrent use.
type feed struct {
	gate *access.Gate

	mu      sync.Mutex         // guards all below
	closed  bool               // for good
	streams int                // readers
	end     context.CancelFunc // ends the following; nil if it does not follow
	idle    *time.Timer        // calls stop
	life    string             // a random id of the event numbers; new when changes may have been missed
	first   uint64             // the number of the oldest event in latest
	latest  latest
	since   time.Time     // latest has all changes from then on
	more    chan struct{} // closed at the next event
	begun   chan struct{} // closed at the first status from the engine
	listed  bool          // the list that precedes the following is complete
}

// A mark is a position in a feed: the number of the last event read.
type mark struct {
	life   string
	number uint64
}

func (m mark) String() string { return m.life + "." + strconv.FormatUint(m.number, 10) }

// markOf parses a mark; it returns the zero mark if text is not one.
func markOf(text string) mark {
	life, number, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return mark{}
	}
	return mark{life, n}
}

func newFeed(g *access.Gate) *feed {
	return &feed{gate: g, more: make(chan struct{}), since: time.Now()}
}

// join adds a reader. Each stream calls it before it reads, and leave afterwards.
func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	if f.end == nil && !f.closed {
		var life context.Context
		life, f.end = context.WithCancel(context.Background())
		f.begin()
		go f.run(life)
	}
}

// A start is what a feed knows when a list begins. Changes between an earlier list and the start of the following
// are missed.
type start struct {
	mark    mark            // changes from here on follow
	follows bool            // the feed certainly follows the engine
	listed  bool            // the feed has listed all claims
	begun   <-chan struct{} // closed when the feed certainly follows the engine; nil only if the feed is closed
}

// awaitStart waits until the feed follows the engine, for underWay at most: without claims an engine does not
// show that it is followed.
func (f *feed) awaitStart(ctx context.Context) start {
	f.mu.Lock()
	begun := f.begun
	f.mu.Unlock()
	timer := time.NewTimer(underWay)
	defer timer.Stop()
	select {
	case <-begun:
	case <-timer.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := start{mark: f.nowLocked(), listed: f.listed, begun: f.begun}
	select {
	case <-f.begun:
		s.follows = true
	default:
	}
	return s
}

// misses reports whether changes after a list that began then may be missed. After an empty list none are: all
// claims that are there when the following begins are newer than the list of the feed, so they are changes.
func (s *start) misses(empty bool) bool { return !s.follows && !(empty && s.listed) }

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams--
	if f.streams == 0 && !f.closed {
		f.idle = time.AfterFunc(linger, f.stop)
	}
}

// stop ends the following, unless a stream has joined meanwhile.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == 0 && f.end != nil {
		f.end()
		f.end, f.latest, f.life = nil, latest{}, ""
	}
}

// close ends the following for good.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.idle != nil {
		f.idle.Stop()
	}
	if f.end != nil {
		f.end()
	}
}

// begin drops all events, because changes may have been missed. f.mu is held.
func (f *feed) begin() {
	f.life, f.first, f.since = strings.ToLower(rand.Text()[:13]), 1, time.Now()
	f.latest = latest{most: maxEvents, mostBytes: maxEventBytes}
	f.begun, f.listed = make(chan struct{}), false
	f.wake()
}

// wake wakes all readers. f.mu is held.
func (f *feed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// A subject identifies a claim, or one path of a freeze, at one change.
type subject struct {
	ref    lockkeeper.Ref
	path   lockkeeper.Path
	state  lockkeeper.State
	change uint64
}

func subjectOf(st *lockkeeper.Status) subject {
	s := subject{ref: st.Ref, state: st.State, change: st.Change}
	if len(st.Grants) > 0 {
		s.path = st.Grants[0].Path
	}
	return s
}

// run follows the engine until ctx ends.
func (f *feed) run(ctx context.Context) {
	e := f.gate.Engine()
	for {
		// List with Follow first yields all claims. Those are no changes, because each stream has a
		// list of its own; a difference between the two lists is one.
		known := make(map[subject]bool)
		left := 0
		var failed error
		for st, err := range e.List(ctx, lockkeeper.Query{Brief: true}) {
			if failed = err; err != nil {
				break
			}
			known[subjectOf(&st)] = true
			left++
		}
		if failed == nil {
			f.mu.Lock()
			f.listed = f.listed || ctx.Err() == nil // otherwise another run may have begun
			f.mu.Unlock()
			for st, err := range e.List(ctx, lockkeeper.Query{Follow: true, Brief: true}) {
				if err != nil {
					break
				}
				old := known[subjectOf(&st)]
				if left--; left <= 0 {
					known = nil
				}
				f.add(ctx, st, old)
			}
		}
		if solo.Pause(ctx, retry) != nil {
			return
		}
		f.mu.Lock()
		if ctx.Err() == nil {
			f.begin()
		}
		f.mu.Unlock()
	}
}

// add adds a change. A status that is old only shows that the feed follows.
func (f *feed) add(ctx context.Context, st lockkeeper.Status, old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // another run may have begun
	}
	select {
	case <-f.begun:
	default:
		close(f.begun)
	}
	if old {
		return
	}
	if dropped := f.latest.add(&st); dropped > 0 {
		f.first += uint64(dropped)
		f.since = f.latest.ring[f.latest.oldest].at
	}
	f.wake()
}

// now returns the latest mark.
func (f *feed) now() mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nowLocked()
}

func (f *feed) nowLocked() mark { return mark{f.life, f.first + uint64(f.latest.count) - 1} }

// until returns the latest n events up to a mark, in order, and since when the feed has all changes.
func (f *feed) until(m mark, n int) ([]event, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life == "" || m.life != f.life || m.number < f.first {
		return nil, f.since
	}
	upTo := int(min(m.number+1-f.first, uint64(f.latest.count)))
	n = min(n, upTo)
	return f.latest.from(upTo-n, n), f.since
}

// after returns some of the events after a mark, and a channel that is closed at the next event. ok
// is false if events after the mark were dropped or missed.
func (f *feed) after(m mark) (events []event, more <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.first + uint64(f.latest.count) - 1
	if f.life == "" || m.life != f.life || m.number+1 < f.first || m.number > last {
		return nil, nil, false
	}
	return f.latest.from(int(m.number+1-f.first), mostRead), f.more, true
}
