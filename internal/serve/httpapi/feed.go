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

// Bounds of a feed, and when it ends.
const (
	mostEvents     = 16_384
	mostEventBytes = 16 << 20
	linger         = time.Minute            // after its last stream, so that one that comes back finds what it missed
	underWay       = 100 * time.Millisecond // by then an engine with nothing to tell follows
)

// A feed follows the gate's engine once for all streams, and keeps the latest
// changes, so that a stream that broke off can be resumed. It follows from its first
// stream until some time after its last. It is safe for concurrent use.
type feed struct {
	gate *access.Gate

	mu      sync.Mutex         // guards all below
	closed  bool               // it follows no more
	streams int                // that read it
	end     context.CancelFunc // of the following; nil if it is not
	idle    *time.Timer        // ends it
	life    string             // of which the numbers are: another one whenever changes may have been missed
	first   uint64             // the number of events[0]
	events  []event
	bytes   int
	more    chan struct{} // closed when there is more
	begun   chan struct{} // closed when the engine has told something
}

// An event is one change, as the gate's engine tells it.
type event struct {
	lockkeeper.Status
	bytes int // about
}

// A mark is a place in a feed: the events up to this number have been read.
type mark struct {
	life   string
	number uint64
}

func (m mark) String() string { return m.life + "." + strconv.FormatUint(m.number, 10) }

// markOf reads a mark; the zero mark if it is none.
func markOf(text string) mark {
	life, number, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return mark{}
	}
	return mark{life, n}
}

func newFeed(g *access.Gate) *feed { return &feed{gate: g, more: make(chan struct{})} }

// join is called by each stream before it reads, and leave once after.
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

// settle waits until the engine is followed, as far as that can be seen: a list that
// is made before may have in it what is then not told to have changed.
func (f *feed) settle(ctx context.Context) {
	f.mu.Lock()
	begun := f.begun // nil only if it is closed
	f.mu.Unlock()
	timer := time.NewTimer(underWay)
	defer timer.Stop()
	select {
	case <-begun:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams--
	if f.streams == 0 && !f.closed {
		f.idle = time.AfterFunc(linger, f.stop)
	}
}

// stop ends the following if no stream has come meanwhile.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams == 0 && f.end != nil {
		f.end()
		f.end, f.events, f.bytes, f.life = nil, nil, 0, ""
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

// begin forgets everything: changes may have been missed. f.mu is held.
func (f *feed) begin() {
	f.life, f.first, f.events, f.bytes = strings.ToLower(rand.Text()[:13]), 1, nil, 0
	f.begun = make(chan struct{})
	f.tell()
}

// tell wakes those who read. f.mu is held.
func (f *feed) tell() {
	close(f.more)
	f.more = make(chan struct{})
}

// subject is what a status is about: a claim, or one path of a freeze, as it stood.
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
		// A follower is first told all that there is. That is no change: each stream
		// has a list of its own. What changed between the two lists is one.
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

// add takes in what the engine told; nothing but that it follows if it is old.
func (f *feed) add(ctx context.Context, st lockkeeper.Status, old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // ended, and perhaps begun anew by another
	}
	select {
	case <-f.begun:
	default:
		close(f.begun)
	}
	if old {
		return
	}
	ev := event{st, bytesOf(&st)}
	f.events = append(f.events, ev)
	f.bytes += ev.bytes
	drop := 0
	for len(f.events)-drop > mostEvents || f.bytes > mostEventBytes {
		f.bytes -= f.events[drop].bytes
		f.events[drop] = event{}
		drop++
	}
	f.first += uint64(drop)
	f.events = f.events[drop:]
	f.tell()
}

// bytesOf is about what a status takes.
func bytesOf(st *lockkeeper.Status) int {
	n := 400 + len(st.Ref.Session) + len(st.Text) + len(st.As) + len(st.Note) + len(st.Link)
	for _, g := range st.Grants {
		n += 64 + len(g.Path)
	}
	for _, b := range st.Blockers {
		n += 160 + len(b.Ref.Session) + len(b.Path) + len(b.As) + len(b.Note) + len(b.Link)
	}
	return n
}

// now is the latest mark.
func (f *feed) now() mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return mark{f.life, f.first + uint64(len(f.events)) - 1}
}

// after returns some of the events after a mark, and a channel that is closed when
// there are more than those. It is false if what came after the mark is not known.
func (f *feed) after(m mark) (events []event, more <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.first + uint64(len(f.events)) - 1
	if f.life == "" || m.life != f.life || m.number+1 < f.first || m.number > last {
		return nil, nil, false
	}
	events = f.events[m.number+1-f.first:]
	return append([]event(nil), events[:min(len(events), 256)]...), f.more, true
}
