package sqllock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

const (
	watchBack = 5 * time.Second // how old an end may be that the poller reads
	// If no transaction has begun for so long, nothing changes, since transactions are shorter.
	// Then the poller only reads whether one begins, and everything every watchAnyway.
	watchStill  = attemptBound + time.Second
	watchAnyway = 15 * time.Second
)

// stillness is the state of [Engine.still]: what shows that nothing happens in the database.
type stillness struct {
	drawn  uint64    // every transaction that decides anything draws numbers
	since  time.Time // when drawn changed
	looked time.Time // when everything was read
}

// watchersRead returns the read of the poller. It reads nothing while nothing happens in the database
// and no watcher comes.
func (e *Engine) watchersRead() watching.Read[moment] {
	var last stillness
	var ending map[string][]lockkeeper.Ref
	return func(queries []lockkeeper.Query, joined bool) *moment {
		e.announce(e.cutting)
		if !joined && e.still(&last) {
			return nil
		}
		s := newScope(usual)
		for _, q := range queries {
			s.sees(q)
		}
		m, err := e.read(e.cutting, s, watchBack)
		if err != nil {
			m = &moment{err: err}
		}
		e.sweepEnding(ending, m.ending)
		ending = m.ending
		return m
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

// watch yields the statuses that q selects, and then their changes.
func (e *Engine) watch(ctx context.Context, q lockkeeper.Query, yield func(lockkeeper.Status, error) bool) {
	w := e.poller.Join(q)
	defer w.Leave()
	reported := watching.NewReported()
	seen := make(map[lockkeeper.Ref]uint64) // ends that it has received
	for first := true; ; first = false {
		m := w.Next(ctx)
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
		return l.send(ctx, append(e.dialect.clock(&at, 0), e.dialect.claims(&search{refs: refs}, keep)))
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
	watchLease    = 30 * time.Second // half of it is longer than a slow read
	watchMargin   = 2 * time.Second  // an announcement with less left does not count
	announceTries = 20               // each waits for a latch for latchPatience at most
)

// announce writes that there are watchers here, so that other processes keep the rows of ended
// claims. The first announcement waits for all transactions that may not have seen it; between its
// tries it lets other transactions pass. If it fails, some claims end without a reason.
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
	for range announceTries {
		began := time.Now()
		err := e.tryAnnounce(ctx, left < watchMargin)
		if err == nil {
			a.until = began.Add(watchLease)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// tryAnnounce writes the announcement, after all present transactions if it is the first one.
func (e *Engine) tryAnnounce(ctx context.Context, first bool) error {
	d := e.dialect
	return d.with(ctx, e.db.pool, func(l link) error {
		var at reading
		all := d.begin(patience{latchPatience, idleFirst})
		if first {
			all = append(all, d.latch([]latch{{"", true}})...)
		}
		if err := l.send(ctx, append(all, d.clock(&at, 0)...)); err != nil {
			return err
		}
		return l.send(ctx, []statement{d.announceWatcher(e.process, at.now+watchLease), d.commit()})
	})
}
