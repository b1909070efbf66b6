package sqllock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// How often this process reads its wakeups.
const (
	pollListening = 2 * time.Second        // the database sends notices: in case one is lost
	holdingFirst  = 64 * time.Millisecond  // no notices, and claims are only held: they may be asked to yield
	holdingLast   = time.Second            // at most, when nothing has happened for a while
	pollFirst     = 4 * time.Millisecond   // no notices, and claims have begun to wait
	pollLast      = 128 * time.Millisecond // at most, when nothing has happened for a while
	// pollPart: between first and last, the interval is timeSinceLastEvent / pollPart. So a
	// waiter learns of its grant at most wait/pollPart late. A holder learns of an ask at most
	// 1/holdingPart of that time late.
	pollPart    = 16
	holdingPart = 4
)

// wakeups wake checkWaiters.
type wakeups struct {
	local     chan struct{} // filled by events of this process
	notified  chan struct{} // filled by notices of the database
	lastEvent time.Time     // used by checkWaiters alone
}

func newWakeups() *wakeups {
	return &wakeups{local: make(chan struct{}, 1), notified: make(chan struct{}, 1)}
}

func (w *wakeups) wake() { wake(w.local) }

func wake(wakeup chan struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// checkWaiters checks the waiting claims of this process when something falls due for them, reads
// wakeups of other processes, and cleans up now and then.
func (e *Engine) checkWaiters() {
	defer e.running.Done()
	listener := newListener(e)
	defer listener.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	polled, cleaned := time.Now(), time.Now()
	for {
		woken := false
		select {
		case <-e.closing.Done():
			return
		case <-e.wakeups.local:
			e.wakeups.lastEvent = time.Now()
		case <-e.wakeups.notified:
			woken = true
		case <-timer.C:
		}
		now := time.Now()
		refs, next := e.local.due(now)
		if len(refs) > 0 {
			e.check(refs)
		}
		waiting, all := e.local.counts()
		if at := listener.update(waiting > 0, all > 0); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if pause := e.pollPause(listener, waiting, all); pause > 0 {
			if woken || now.Sub(polled) >= pause {
				e.receiveWakeups()
				polled = time.Now()
			}
			if at := polled.Add(e.pollPause(listener, waiting, all)); next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if now.Sub(cleaned) >= cleanEvery && (all > 0 || e.poller.Watched()) {
			cleaned = now
			e.cleanUp()
		}
		if next.IsZero() {
			next = now.Add(cleanEvery)
		}
		timer.Reset(max(time.Until(next), time.Millisecond))
	}
}

// pollPause is the time between two reads of the wakeups; 0: no claim needs them.
func (e *Engine) pollPause(listener *listener, waiting, all int) time.Duration {
	switch {
	case all == 0:
		return 0
	case listener.listening():
		return pollListening
	case waiting == 0:
		return min(max(time.Since(e.wakeups.lastEvent)/holdingPart, holdingFirst), holdingLast)
	}
	return min(max(time.Since(e.wakeups.lastEvent)/pollPart, pollFirst), pollLast)
}

// check starts a transaction that reads claims and all that they depend on: it ends claims that
// have fallen due, and grants claims whose blockers are gone.
func (e *Engine) check(refs []lockkeeper.Ref) {
	e.spawn(func(s *scope) {
		for _, ref := range refs {
			s.refs[ref] = true
			s.add(e.local.targets(ref))
		}
	}, func(tx *transaction) { tx.reportRemoved(refs) })
}

// spawn adds a job of the engine itself. Nobody waits for its answer.
func (e *Engine) spawn(needs func(*scope), do func(*transaction)) {
	e.work.Add(&job{needs: needs, do: do})
}

// reportRemoved notifies the sessions of claims whose rows somebody removed.
func (tx *transaction) reportRemoved(refs []lockkeeper.Ref) {
	for _, ref := range refs {
		if tx.view.claims[ref] != nil {
			continue
		}
		if change, targets := tx.e.local.present(ref); targets != nil {
			tx.reportRevoked(ref, change, targets)
			tx.after = append(tx.after, func() { tx.e.local.suspect(ref.Session) })
		}
	}
}

// reportRevoked notifies a session of this process of the end of a claim without a row.
func (tx *transaction) reportRevoked(ref lockkeeper.Ref, change uint64, targets []lockkeeper.Target) {
	st := lockkeeper.Status{
		Ref:    ref,
		Change: change + 1,
		State:  lockkeeper.Ended,
		Reason: lockkeeper.Revoked,
		Text:   "its row in the database was removed",
	}
	for _, t := range targets {
		st.Grants = append(st.Grants, lockkeeper.Grant{Target: t})
	}
	if _, here := tx.e.local.notify(ref.Session); here {
		tx.news.add(st)
	}
}

// checkElsewhere starts transactions for what a transaction left undecided: the rest of queues of
// which it read a prefix (see "Partial reads" in the package comment), and the claims of sessions
// that ended.
func (e *Engine) checkElsewhere(tx *transaction) {
	paths := make(map[lockkeeper.Path]bool)
	for i, last := range tx.view.prefixEnds { // order does not matter
		if r := tx.regions[i]; len(tx.granted) > 0 && !tx.exclusiveAhead(r.path, last) || tx.prefixEnded(r, last) {
			paths[r.path] = true
		}
	}
	if len(paths) > 0 {
		e.spawn(func(s *scope) {
			for path := range paths { // order does not matter
				s.add([]lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}})
			}
		}, func(*transaction) {})
	}
	for id := range tx.closed { // order does not matter
		if !tx.scope.entire[id] {
			e.sweep(id)
		}
	}
}

// sweep ends the claims of sessions that have ended.
func (e *Engine) sweep(ids ...string) {
	e.spawn(func(s *scope) {
		for _, id := range ids {
			s.sessions[id], s.entire[id] = true, true
		}
	}, func(tx *transaction) {
		_, _ = tx.step(table.Command{Op: table.Pass}) // never refused
	})
}

// receiveWakeups reads the claims that other processes have changed, and notifies their sessions.
// It removes the wakeups afterwards: if it is interrupted, the sessions are notified again.
func (e *Engine) receiveWakeups() {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	tx := &transaction{e: e}
	woken := make(map[lockkeeper.Ref]bool)
	var wakeups []int
	err := e.reading(ctx, func(l link) error {
		tx.link = l
		tx.reset()
		clear(woken)
		wakeups = nil
		v := tx.view
		keep := func(n int, c *rows.Claim) {
			v.claims[c.Ref], woken[c.Ref] = c, true
			wakeups = append(wakeups, n)
		}
		all := append(e.dialect.clock(&v.reading, 0), e.dialect.readWakeups(e.process, keep))
		if err := tx.send(ctx, all...); err != nil {
			return err
		}
		return tx.readAskers(ctx, func(_ int, c *rows.Claim) { v.claims[c.Ref] = c })
	})
	if err != nil || len(woken) == 0 {
		return // it is read again soon
	}
	e.wakeups.lastEvent = time.Now()
	e.notifyWoken(tx.view, woken)
	_ = e.dialect.with(ctx, e.db.pool, func(l link) error {
		return l.send(ctx, e.dialect.removeWakeups(e.process, wakeups))
	})
}

// notifyWoken notifies the sessions of this process of claims that other processes have changed.
func (e *Engine) notifyWoken(v *view, woken map[lockkeeper.Ref]bool) {
	t, err := v.bareTable()
	if err != nil {
		return
	}
	n := news{any: true}
	for _, ref := range sortedRefs(woken) {
		st, live := t.Status(ref)
		if c := v.claims[ref]; c.ClaimRecord.State == lockkeeper.Ended {
			st, live = c.EndedStatus(v.reading.now), true
		}
		if live {
			e.local.note(&st)
			n.add(st)
		}
	}
	e.deliver(&n)
}

// bareTable returns a table of the claims read. Only the status of each claim by itself is valid,
// not its blockers.
func (c *view) bareTable() (*table.Table, error) {
	snap := table.Snapshot{Counters: table.Counters{Now: c.reading.now}}
	known := make(map[string]bool)
	for _, ref := range slices.SortedFunc(maps.Keys(c.claims), compareRefs) {
		found := c.claims[ref]
		snap.Counters.Now = max(snap.Counters.Now, found.Changed)
		if found.ClaimRecord.State != lockkeeper.Ended {
			snap.Claims = append(snap.Claims, found.ClaimRecord)
		}
		if !known[ref.Session] {
			known[ref.Session] = true
			snap.Sessions = append(snap.Sessions, table.SessionRecord{
				ID:       ref.Session,
				TTL:      lockkeeper.MinTTL,
				Deadline: lockkeeper.Forever,
				Resumed:  true,
			})
		}
	}
	t := table.New()
	return t, t.Load(snap)
}
