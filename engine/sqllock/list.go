package sqllock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/internal/watching"
	"github.com/lockkeeper/lockkeeper/table"
)

// List implements lockkeeper.Engine. A watcher receives the difference to its last read, at most
// some twenty times a second. It may miss states in between, but never the last state of a claim.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return watching.List(ctx, q, e.list, e.watch)
}

// reading passes a connection to do. It repeats do after a retryable error, such as that of a
// pooler that allows no prepared statements.
func (e *Engine) reading(ctx context.Context, do func(link) error) error {
	for try := 0; ; try++ {
		err := e.dialect.with(ctx, e.db.pool, do)
		if err == nil || try == 3 || e.dialect.outcomeOf(err, false) != retryable {
			return err
		}
	}
}

// list returns the claims that q selects, all as of one moment.
func (e *Engine) list(ctx context.Context, q lockkeeper.Query) ([]lockkeeper.Status, error) {
	s := newScope(usual)
	s.sees(q)
	m, err := e.read(ctx, s, 0)
	if err != nil {
		return nil, err
	}
	all, _ := m.pick(q)
	return all, nil
}

// moment is the result of one read, for one caller or for all watchers: all its rows are as of one
// moment.
type moment struct {
	err   error // nothing was read, and all below is nil
	ended []lockkeeper.Status
	past  map[lockkeeper.Ref]bool // ended claims that are older than back
	// ending are claims of sessions that have ended, by session: a later transaction decides why they
	// end, and when.
	ending map[string][]lockkeeper.Ref

	mu    sync.Mutex // guards table
	table *table.Table
}

// read reads one moment of what s selects; with back also claims that ended since then.
func (e *Engine) read(ctx context.Context, s *scope, back time.Duration) (*moment, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	if e.closing.Err() != nil {
		return nil, unavailable(calls.ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptBound)
	defer cancel()
	m := &moment{
		past:   make(map[lockkeeper.Ref]bool),
		ending: make(map[string][]lockkeeper.Ref),
	}
	s.limit = 0
	tx := &transaction{e: e, scope: s}
	err := e.reading(ctx, func(l link) error {
		tx.link = l
		tx.reset()
		return tx.readOnly(ctx, back)
	})
	if err == nil {
		m.table, err = tx.view.wholeTable()
	}
	if err != nil {
		return nil, e.unavailableBecause(err, nil)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(tx.view.claims), compareRefs) {
		switch found := tx.view.claims[ref]; {
		case found.Thawed:
		case found.ClaimRecord.State == lockkeeper.Ended:
			m.ended = append(m.ended, found.EndedStatus(m.table.Now()))
			m.past[ref] = found.Ended <= tx.view.reading.now-back
		case !m.table.Open(ref.Session):
			m.ending[ref.Session] = append(m.ending[ref.Session], ref)
		}
	}
	return m, nil
}

// pick returns the present and the ended claims that q selects.
func (m *moment) pick(q lockkeeper.Query) (all, ended []lockkeeper.Status) {
	for i := range m.ended {
		if q.Selects(&m.ended[i]) {
			ended = append(ended, m.ended[i])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(m.table.List(q)), ended
}

// sees adds the claims, sessions and paths that q selects; the whole tree if it selects everything.
func (s *scope) sees(q lockkeeper.Query) {
	switch {
	case q.Ref != (lockkeeper.Ref{}):
		s.refs[q.Ref], s.sessions[q.Ref.Session] = true, true
	case q.Session != "":
		s.entire[q.Session], s.sessions[q.Session] = true, true
	case q.Meets != "":
		s.paths[q.Meets] = true
		for up := range q.Meets.Ancestors() {
			s.paths[up] = s.paths[up] || false // with the permits there, which do not meet paths below
		}
	default:
		s.all = true
	}
}

// readOnly reads one moment of the scope and all that it depends on. It decides nothing, so it
// needs no latches.
func (tx *transaction) readOnly(ctx context.Context, back time.Duration) error {
	d, v := tx.e.dialect, tx.view
	keep := func(_ int, found *rows.Claim) { v.claims[found.Ref] = found }
	all := append(d.snapshot(), d.clock(&v.reading, 0)...)
	all = append(all, d.freezes(func(f table.FreezeRecord) { v.freezes = append(v.freezes, f) }))
	if err := tx.send(ctx,
		append(all, d.holdTimes(nil, func(p table.HoldTimeRecord) { v.holdTimes[p.Path] = p }))...); err != nil {
		return err
	}
	if ids := slices.Sorted(maps.Keys(tx.scope.sessions)); len(ids) > 0 {
		if err := tx.send(ctx, d.sessions(ids, false, v.keepSession)); err != nil {
			return err
		}
	}
	if tx.scope.all {
		all = []statement{d.claims(&search{everyone: true}, keep), d.sessions(nil, false, v.keepSession)}
		if err := tx.send(ctx, all...); err != nil {
			return err
		}
	}
	for again := !tx.scope.all; again; {
		if err := tx.send(ctx, d.claims(tx.search(), keep)); err != nil {
			return err
		}
		wider, err := tx.readDependencies(ctx)
		if err != nil {
			return err
		}
		again = wider
	}
	if back > 0 {
		if err := tx.send(ctx, d.claims(&search{ended: true, since: v.reading.now - back}, keep)); err != nil {
			return err
		}
	}
	return tx.send(ctx, d.commit())
}

// wholeTable is the table of all rows, without ended claims.
func (c *view) wholeTable() (*table.Table, error) {
	now := c.reading.now
	for _, found := range c.claims { // order does not matter
		now = max(now, found.Changed)
	}
	snap := table.Snapshot{Counters: table.Counters{Now: now}, Freezes: c.freezes}
	for _, s := range c.sessions { // order does not matter: sessions are known by their ids
		if !s.Closed && s.Deadline > now {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(c.claims), compareRefs) {
		if s := c.sessions[ref.Session]; s != nil && !s.Closed && s.Deadline > now {
			snap.Claims = append(snap.Claims, c.claims[ref].ClaimRecord)
		}
	}
	snap.Freezes = slices.DeleteFunc(snap.Freezes, func(f table.FreezeRecord) bool { return f.Until <= now })
	for _, p := range c.holdTimes { // order does not matter
		snap.HoldTimes = append(snap.HoldTimes, p)
	}
	t := table.New()
	return t, t.Load(snap)
}
