package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// memory is a database without a database: the tables of the engine as maps, and the dialect that
// speaks to them. A statement carries its function. Other transactions see the writes of a
// transaction when it commits, as under READ COMMITTED.
//
// It checks its users: a transaction must have latched every path that it writes, or must have
// locked the row of the session. The faults are in wrong.
//
// It is used by one goroutine at a time.
type memory struct {
	now     time.Duration
	numbers uint64
	tables  memoryTables
	latches map[lockkeeper.Path]map[*memoryLink]bool // the owners of each latch; true: exclusively
	locks   map[string]*memoryLink                   // rows of sessions
	turn    func(l *memoryLink, s statement) error   // called before each statement, if set
	watched bool                                     // somebody follows
	wrong   error
	stats   struct{ transactions, conflicts, latches, cut, all int }
}

// memoryTables are the committed rows.
type memoryTables struct {
	sessions  map[string]session
	claims    map[lockkeeper.Ref]claimRow
	targets   map[targetKey]lockkeeper.Mode
	freezes   map[lockkeeper.Path]table.FreezeRecord
	holdTimes map[lockkeeper.Path]table.HoldTimeRecord
	wakeups   []wakeup
}

var _ dialect = (*memory)(nil)

// claimRow is a row of the table of claims.
type claimRow struct {
	rows.Claim
	more bool // its last column is not empty
}

// targetKey is the primary key of the table of targets.
type targetKey struct {
	path lockkeeper.Path
	order
}

func newMemory() *memory {
	return &memory{
		numbers: numbersAtOnce,
		tables: memoryTables{
			sessions: make(map[string]session),
			claims:   make(map[lockkeeper.Ref]claimRow),
			targets:  make(map[targetKey]lockkeeper.Mode),
			freezes:  make(map[lockkeeper.Path]table.FreezeRecord), holdTimes: make(map[lockkeeper.Path]table.HoldTimeRecord),
		},
		latches: make(map[lockkeeper.Path]map[*memoryLink]bool), locks: make(map[string]*memoryLink),
	}
}

func (m *memory) blame(format string, args ...any) {
	if m.wrong == nil {
		m.wrong = fmt.Errorf(format, args...)
	}
}

// memoryLink is a connection.
type memoryLink struct {
	m       *memory
	latched map[lockkeeper.Path]bool // true: exclusively
	locked  map[string]bool          // sessions whose rows are locked
	ended   map[lockkeeper.Ref]bool  // claims that it writes as ended
	writes  []func()
	open    bool
	alone   bool // it has locked sessions to read them: a renewal
}

// doing is what a statement does.
type doing func(l *memoryLink) error

func does(name string, do doing) statement { return statement{text: name, args: []any{do}} }

// with implements dialect.
func (m *memory) with(_ context.Context, _ *sql.DB, do func(link) error) error {
	l := &memoryLink{m: m}
	err := do(l)
	if l.open && err == nil {
		m.blame("a transaction was left open")
	}
	l.finish()
	return err
}

// send implements link.
func (l *memoryLink) send(_ context.Context, all []statement) error {
	for _, s := range all {
		if l.m.turn != nil {
			if err := l.m.turn(l, s); err != nil {
				return err
			}
		}
		if err := s.args[0].(doing)(l); err != nil {
			return err
		}
	}
	return nil
}

func (l *memoryLink) finish() {
	for path := range l.latched {
		delete(l.m.latches[path], l)
	}
	for id := range l.locked {
		delete(l.m.locks, id)
	}
	l.latched, l.locked, l.writes, l.open, l.alone = nil, nil, nil, false, false
}

func (m *memory) begin(patience) []statement {
	return []statement{does("begin", func(l *memoryLink) error {
		if l.open {
			m.blame("a transaction within a transaction")
		}
		m.stats.transactions++
		l.open, l.latched, l.locked, l.ended = true, make(map[lockkeeper.Path]bool), make(map[string]bool), make(
			map[lockkeeper.Ref]bool)
		return nil
	})}
}

func (m *memory) snapshot() []statement { return m.begin(patience{}) }

func (m *memory) commit() statement {
	return does("commit", func(l *memoryLink) error {
		for _, write := range l.writes {
			write()
		}
		l.finish()
		return nil
	})
}

func (m *memory) rollback() statement {
	return does("rollback", func(l *memoryLink) error { l.finish(); return nil })
}

func (m *memory) latch(all []latch) []statement {
	if len(all) == 0 {
		return nil
	}
	return []statement{{text: "latch", args: []any{doing(func(l *memoryLink) error {
		for _, one := range all {
			if !m.free(l, one) {
				return errOccupied
			}
			if m.latches[one.path] == nil {
				m.latches[one.path] = make(map[*memoryLink]bool)
			}
			m.latches[one.path][l], l.latched[one.path] = one.exclusive, one.exclusive
			m.stats.latches++
		}
		return nil
	}), all}}}
}

// free reports whether l can have a latch.
func (m *memory) free(l *memoryLink, one latch) bool {
	for other, exclusive := range m.latches[one.path] {
		if other != l && (exclusive || one.exclusive) {
			return false
		}
	}
	return true
}

// errOccupied: somebody else has a latch, or the row of a session.
var errOccupied = errors.New("somebody else has the latch")

func (m *memory) clock(to *reading, blocks int) []statement {
	return []statement{does("clock", func(*memoryLink) error {
		if to.now = m.now; blocks > 0 {
			to.numbers, to.watched = m.numbers+numbersAtOnce, m.watched
			m.numbers += uint64(blocks) * numbersAtOnce
			to.last = m.numbers
		}
		return nil
	})}
}

// lock locks the row of a session.
func (l *memoryLink) lock(id string) error {
	if owner := l.m.locks[id]; owner != nil && owner != l {
		return errOccupied
	}
	l.m.locks[id], l.locked[id] = l, true
	return nil
}

func (m *memory) outcomeOf(err error, _ bool) outcome {
	switch {
	case errors.Is(err, errConflict):
		m.stats.conflicts++
		return retryable
	case errors.Is(err, errOccupied):
		return lockTimeout
	}
	return fatal
}

// sound finds rows that don't fit together.
func (m *memory) sound() error {
	if m.wrong != nil {
		return m.wrong
	}
	should := make(map[targetKey]lockkeeper.Mode)
	for ref, row := range m.tables.claims {
		for _, t := range targetRows(&row.Claim) {
			should[targetKey{t.path, t.order}] = t.mode
		}
		if s, known := m.tables.sessions[ref.Session]; !known && row.ClaimRecord.State != lockkeeper.Ended {
			return fmt.Errorf("claim %s lives, and its session has no row", ref)
		} else if s.Closed && row.ClaimRecord.State == lockkeeper.Held {
			continue // the next transaction that reads it ends it
		}
	}
	if !maps.Equal(should, m.tables.targets) {
		var lines []string
		for key, mode := range should {
			if m.tables.targets[key] != mode {
				lines = append(lines, fmt.Sprintf("missing: %v %v", key, mode))
			}
		}
		for key, mode := range m.tables.targets {
			if should[key] != mode {
				lines = append(lines, fmt.Sprintf("left over: %v %v", key, mode))
			}
		}
		slices.Sort(lines)
		return fmt.Errorf("the rows of targets are not those of the claims:\n%s", strings.Join(lines, "\n"))
	}
	if len(m.locks) > 0 {
		return errors.New("a row is still locked")
	}
	return nil
}
