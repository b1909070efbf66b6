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

// How often this process looks whether others have rung its bell.
const (
	pollListening = 2 * time.Second        // the database tells at once: this stands behind it
	holdingFirst  = 64 * time.Millisecond  // it doesn't, and only holds are concerned, which may be asked for
	holdingLast   = time.Second            // and nothing has happened for a while
	pollFirst     = 4 * time.Millisecond   // it doesn't, and claims have begun to wait
	pollLast      = 128 * time.Millisecond // and nothing has happened for a while
	// pollPart: between first and last, the interval is timeSinceLastEvent / pollPart. So a
	// waiter learns of its grant at most wait/pollPart late. A holder learns of an ask at most
	// 1/holdingPart of that time late.
	pollPart    = 16
	holdingPart = 4
)

// watch wakes the goroutine that looks after what waits.
type watch struct {
	bell   chan struct{} // something is new here
	heard  chan struct{} // the database has told that something is new
	lively time.Time     // when something has happened here; watching's alone
}

func newWatch() *watch {
	return &watch{bell: make(chan struct{}, 1), heard: make(chan struct{}, 1)}
}

func (w *watch) ring() { ring(w.bell) }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// watching looks after the claims of this process that wait: when something falls
// due around them, and when another process has rung. It clears up now and then.
func (e *Engine) watching() {
	defer e.running.Done()
	ears := newEars(e)
	defer ears.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	polled, tidied := time.Now(), time.Now()
	for {
		rung := false
		select {
		case <-e.closing.Done():
			return
		case <-e.watch.bell:
			e.watch.lively = time.Now()
		case <-e.watch.heard:
			rung = true
		case <-timer.C:
		}
		now := time.Now()
		refs, next := e.local.due(now)
		if len(refs) > 0 {
			e.look(refs)
		}
		waiting, all := e.local.counts()
		if at := ears.open(waiting > 0, all > 0); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if pause := e.pollPause(ears, waiting, all); pause > 0 {
			if rung || now.Sub(polled) >= pause {
				e.answerBells()
				polled = time.Now()
			}
			if at := polled.Add(e.pollPause(ears, waiting, all)); next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if now.Sub(tidied) >= tidyEvery && (all > 0 || e.followed()) {
			tidied = now
			e.tidy()
		}
		if next.IsZero() {
			next = now.Add(tidyEvery)
		}
		timer.Reset(max(time.Until(next), time.Millisecond))
	}
}

// pollPause is how long to wait between two looks at the bells; 0: nobody rings here.
func (e *Engine) pollPause(ears *ears, waiting, all int) time.Duration {
	switch {
	case all == 0:
		return 0
	case ears.hear():
		return pollListening
	case waiting == 0:
		return min(max(time.Since(e.watch.lively)/holdingPart, holdingFirst), holdingLast)
	}
	return min(max(time.Since(e.watch.lively)/pollPart, pollFirst), pollLast)
}

// look has claims looked at. Nobody waits for it.
func (e *Engine) look(refs []lockkeeper.Ref) {
	e.spawn(func(s *scope) {
		for _, ref := range refs {
			s.refs[ref] = true
			s.add(e.local.targets(ref))
		}
	}, func(tx *transaction) { tx.missed(refs) })
}

// spawn puts in a job of the engine's own.
func (e *Engine) spawn(needs func(*scope), do func(*transaction)) {
	e.work.Add(&job{needs: needs, do: do})
}

// missed tells of claims that are there no longer: somebody has removed their rows.
func (tx *transaction) missed(refs []lockkeeper.Ref) {
	for _, ref := range refs {
		if tx.view.claims[ref] != nil {
			continue
		}
		if change, targets := tx.e.local.present(ref); targets != nil {
			tx.lose(ref, change, targets)
		}
	}
}

// lose tells a session of this process that a claim is over of which there is no row.
func (tx *transaction) lose(ref lockkeeper.Ref, change uint64, targets []lockkeeper.Target) {
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

// lookElsewhere looks at what a transaction has left to be looked at: what else a session
// had that ended, and those behind the head of a line in which somebody was granted or of which
// nobody is left.
func (e *Engine) lookElsewhere(tx *transaction) {
	paths := make(map[lockkeeper.Path]bool)
	for i, last := range tx.view.cuts { // order does not matter
		if r := tx.regions[i]; len(tx.granted) > 0 && !tx.barred(r.path, last) || tx.deserted(r, last) {
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

// sweep ends what is left of a session that has ended.
func (e *Engine) sweep(ids ...string) {
	e.spawn(func(s *scope) {
		for _, id := range ids {
			s.sessions[id], s.entire[id] = true, true
		}
	}, func(tx *transaction) {
		_, _ = tx.step(table.Command{Op: table.Pass}) // never refused
	})
}

// answerBells reads the claims that others have changed, and tells their sessions. Only
// then it removes the bells: if this is cut short, they are told once more.
func (e *Engine) answerBells() {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	tx := &transaction{e: e}
	rung := make(map[lockkeeper.Ref]bool)
	var bells []int
	err := e.reading(ctx, func(l link) error {
		tx.link = l
		tx.forget()
		clear(rung)
		bells = nil
		v := tx.view
		keep := func(bell int, c *rows.Claim) {
			v.claims[c.Ref], rung[c.Ref] = c, true
			bells = append(bells, bell)
		}
		if err := tx.send(ctx, append(e.dialect.clock(&v.reading, false), e.dialect.answer(e.process, keep))...); err != nil {
			return err
		}
		return tx.readAskers(ctx, func(_ int, c *rows.Claim) { v.claims[c.Ref] = c })
	})
	if err != nil || len(rung) == 0 {
		return // it is asked again soon
	}
	e.watch.lively = time.Now()
	e.tellRung(tx.view, rung)
	_ = e.dialect.with(ctx, e.db.pool, func(l link) error {
		return l.send(ctx, e.dialect.answered(e.process, bells))
	})
}

// tellRung tells the sessions of this process of claims that others have changed.
func (e *Engine) tellRung(v *view, rung map[lockkeeper.Ref]bool) {
	t, err := v.bareTable()
	if err != nil {
		return
	}
	n := news{any: true}
	for _, ref := range sortedRefs(rung) {
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

// bareTable is a table of claims that only tells of each by itself.
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
