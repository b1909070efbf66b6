package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
	"github.com/lockkeeper/lockkeeper/table"
)

// A scanner reads one row of an answer.
type scanner func(into ...any) error

// statement is one statement with what is done with each row of its answer; rows
// that nobody reads are thrown away.
type statement struct {
	text string
	args []any
	each func(scan scanner) error
}

// A link is one connection to the database. It is used by one goroutine.
type link interface {
	// send has statements done one after the other, in one round trip where the
	// database can. It stops at the first that fails.
	send(ctx context.Context, all []statement) error
}

// errConflict: another transaction has changed what this one has read. Nothing has happened.
var errConflict = errors.New("another transaction was faster")

// outcome is what an error says about a transaction.
type outcome int

const (
	fatal          outcome = iota // nothing has happened, and a repetition would fail as well
	retryable                     // nothing has happened: another transaction was in the way
	lockTimeout                   // nothing has happened: another transaction keeps a latch
	unreachable                   // nothing has happened: the database can't be reached, or is not ready
	unknownOutcome                // it may have been committed
)

// A dialect is how one kind of database is spoken to. Statements that write fail with
// errConflict if they don't find what they were told to find.
type dialect interface {
	// with has do use a connection of the pool. A connection on which do failed is not
	// used again unless the error tells that it is fine.
	with(ctx context.Context, pool *sql.DB, do func(link) error) error
	begin(p patience) []statement
	// snapshot begins a transaction that only reads, and sees one moment.
	snapshot() []statement
	commit() statement
	rollback() statement
	latch(all []latch) []statement
	// clock reads the database's clock; with numbers it takes some, and reads whether anybody
	// follows.
	clock(to *reading, numbers bool) []statement

	// drawn reads the latest number that a transaction has drawn, by clock.
	drawn(to *uint64) statement

	// sessions reads rows; with nil those of all that are open.
	sessions(ids []string, lock bool, each func(*session)) statement
	claims(s *search, each func(region int, c *rows.Claim)) statement
	freezes(each func(table.FreezeRecord)) statement
	holdTimes(paths []lockkeeper.Path, each func(table.HoldTimeRecord)) statement

	// hold locks the rows of sessions, and makes sure that they have the versions that were read.
	// It counts these up, and writes what the sessions have heard and answered.
	hold(all []session) []statement
	// putSessions writes rows of which there are none, and all of some that are held.
	putSessions(new, changed []session) []statement
	// putClaims writes rows of which there are none, and those that have changed, and removes some.
	putClaims(new, changed []*rows.Claim, gone []lockkeeper.Ref) ([]statement, error)
	putTargets(old, new []targetRow) []statement
	putFreezes(ended []lockkeeper.Path, new []table.FreezeRecord) []statement
	putHoldTimes(all []table.HoldTimeRecord) []statement
	dropEnded(session string) statement
	// follow notes that a process follows what happens.
	announceWatcher(process string, until time.Duration) statement
	// listen returns the function that receives notices on one connection until ctx ends, and says
	// to n whether they arrive; nil if the database sends none.
	listen() func(ctx context.Context, e *Engine, n *listening) error
	sendWakeups(wakeups []wakeup, now time.Duration) []statement
	// answer reads the claims that the bells of a process are about, and answered
	// removes those bells.
	readWakeups(process string, each func(n int, c *rows.Claim)) statement
	removeWakeups(process string, wakeups []int) []statement

	// overdue reads sessions that should have ended before, and those that have but left
	// claims behind; some of them.
	overdue(before time.Duration, each func(id string)) statement
	// purge removes what ended before, and need not be remembered any more.
	purge(now, before time.Duration) []statement

	// outcomeOf tells what an error means; committing: the commit had been sent.
	outcomeOf(err error, committing bool) outcome
}

// patience is how long a transaction waits for others, and others for it.
type patience struct {
	latch time.Duration // for a latch, or the row of a session
	idle  time.Duration // what it may take to its next statement; then the database ends it
}

// reading is what the database's clock and counter say.
type reading struct {
	now     time.Duration // since 1970
	numbers uint64        // those above it are ours, 1024 less one
	watched bool          // somebody follows what happens
}

// session is a row of the table of sessions.
type session struct {
	table.SessionRecord
	process string
	attempt string
	version int64 // as it was read
}

// targetRow is a row of the table of targets.
type targetRow struct {
	path lockkeeper.Path
	mode lockkeeper.Mode
	order
}

// search says which claims are looked for; region tells where one was found, byName or byHold if
// in none. One that is found twice is told twice.
type search struct {
	now      time.Duration
	refs     []lockkeeper.Ref
	inside   []lockkeeper.Ref // those that are made in the holds of these
	sessions []string         // all that these have, those of whose ends they may ask included
	renewed  []string         // of these what a lease tells
	regions  []region
	deep     bool // also those that are made in the holds of who is found in the regions
	limit    int  // claims of each region; 0: all
	most     int  // and how many of the regions of one kind; 0: all
	everyone bool
	ended    bool          // those that ended
	since    time.Duration // after this
}

const (
	byName = -1
	byHold = -2 // of a deep search
)

// bell tells a process to look at a claim.
type wakeup struct {
	process string
	ref     lockkeeper.Ref
}
