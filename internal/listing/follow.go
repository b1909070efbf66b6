package listing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Source lists claims: a client, or an engine.
type Source interface {
	List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error]
}

// Reading is all claims of a query at one moment.
type Reading struct {
	All []lockkeeper.Status
	At  time.Time // when All was asked for

	// Err is nil if All is the state at At. If the engine shows its last durable state
	// ([lockkeeper.Stale]), Err says so, and how old that is. Any other error says why the engine
	// can't be read now; All and At are then those of the last reading that succeeded.
	Err error
}

const (
	leastPause = 250 * time.Millisecond // between two readings, however many changes there are
	pollPause  = time.Second            // between readings while the engine sends no changes, and between attempts
	checkPause = 5 * time.Second        // between readings while it does: an engine that fell silent is noticed
	readBound  = 5 * time.Second        // of one reading
)

// Follow reads the claims of q now and after every change, and calls show with each reading, until
// ctx ends, show fails, or the engine refuses. It reads at most four times a second. If the engine
// can't notify of changes, it reads once a second.
//
// Every reading is whole: nothing of an earlier one is kept, so an engine that restarted never
// shows claims of its earlier life. While the engine can't be reached, show is called with the old
// claims and the error after each failed attempt, and Follow goes on. The first reading must
// succeed; otherwise Follow returns its error.
//
// show is called by one goroutine at a time. Follow returns nil when ctx ends.
func Follow(ctx context.Context, from Source, q lockkeeper.Query, show func(Reading) error) error {
	ctx, end := context.WithCancel(ctx)
	f := follower{from: from, query: q, changed: make(chan struct{}, 1)}
	var listening sync.WaitGroup
	defer listening.Wait()
	defer end()
	last, err := f.read(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	listening.Go(func() { f.listen(ctx) })
	for ctx.Err() == nil {
		if err := show(last); err != nil {
			return err
		}
		if !f.pause(ctx, last.Err) {
			break
		}
		next, err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			last = next
		case errors.Is(err, lockkeeper.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
			last.Err = err
		default:
			return err
		}
	}
	return nil
}

// follower reads a source again and again.
type follower struct {
	from    Source
	query   lockkeeper.Query
	changed chan struct{} // has an element if something may have changed since the last reading
	listens atomic.Bool   // changed receives every change
}

// read reads all claims. An old state that the engine shows is no error, but is in Reading.Err.
func (f *follower) read(ctx context.Context) (Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	q := f.query
	q.Stale = true
	r := Reading{At: time.Now()}
	for s, err := range f.from.List(ctx, q) {
		if _, stale := lockkeeper.Stale(err); stale {
			r.Err = err
			return r, nil
		}
		if err != nil {
			return r, err
		}
		r.All = append(r.All, s)
	}
	return r, ctx.Err()
}

// pause waits until the next reading is due, and reports whether ctx still lives.
func (f *follower) pause(ctx context.Context, failed error) bool {
	least, most := time.NewTimer(leastPause), time.NewTimer(checkPause)
	defer least.Stop()
	defer most.Stop()
	if failed != nil || !f.listens.Load() {
		most.Reset(pollPause)
	}
	for ready, changed := false, false; !ready || !changed; {
		select {
		case <-least.C:
			ready = true
		case <-f.changed:
			changed = failed == nil // an engine that failed a moment ago is asked once a second
		case <-most.C:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// listen receives changes until ctx ends, or the engine says that it has none.
func (f *follower) listen(ctx context.Context) {
	q := f.query
	q.Follow, q.Brief = true, true
	for ctx.Err() == nil {
		var failed error
		for _, err := range f.from.List(ctx, q) {
			if failed = err; err != nil {
				break
			}
			f.listens.Store(true)
			f.notify()
		}
		f.listens.Store(false)
		f.notify()
		if errors.Is(failed, lockkeeper.ErrUnsupported) {
			return
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
		}
	}
}

func (f *follower) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Aged returns all as they are a while later, as far as that follows from time alone: ages are
// longer, what is left is shorter. It changes nothing in all.
func Aged(all []lockkeeper.Status, by time.Duration) []lockkeeper.Status {
	rest := func(d time.Duration) time.Duration {
		if d == lockkeeper.Forever {
			return d
		}
		return max(0, d-by)
	}
	aged := slices.Clone(all)
	for i := range aged {
		s := &aged[i]
		s.Age, s.Left, s.ETA = s.Age+by, rest(s.Left), rest(s.ETA)
		if s.Asked != nil {
			asked := *s.Asked
			asked.Left, s.Asked = rest(asked.Left), &asked
		}
		s.Blockers = slices.Clone(s.Blockers)
		for j := range s.Blockers {
			b := &s.Blockers[j]
			b.Age, b.Left = b.Age+by, rest(b.Left)
		}
	}
	return aged
}

// Fingerprint is equal for lists that differ in nothing but the passing of time.
func Fingerprint(all []lockkeeper.Status) string {
	var b strings.Builder
	for i := range all {
		s := &all[i]
		fmt.Fprintln(&b, s.Ref, s.Change, s.Revision, s.State, s.Position, s.Waits, s.Converting, s.Lapsed, s.Unconfirmed,
			s.Grants, s.Label)
		if s.Asked != nil {
			fmt.Fprintln(&b, s.Asked.By, s.Asked.Label, s.Asked.Reason)
		}
		for j := range s.Blockers {
			fmt.Fprintln(&b, s.Blockers[j].Ref, s.Blockers[j].Why, s.Blockers[j].Path)
		}
	}
	return b.String()
}
