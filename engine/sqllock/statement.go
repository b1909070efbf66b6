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

// statement is one statement, with what to do with each row of its answer. The link drops the rows
// of a statement without each.
type statement struct {
	text string
	args []any
	each func(scan scanner) error
}

// A link is one connection to the database. It is used by one goroutine.
type link interface {
	// send runs statements in their order, in one round trip where the database can. It stops at
	// the first that fails.
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

// A dialect speaks to one kind of database. Statements that write fail with errConflict if they do
// not find the rows that they should.
type dialect interface {
	// with passes a connection of the pool to do. If do failed, the connection is not used again
	// unless the error says that it is intact.
	with(ctx context.Context, pool *sql.DB, do func(link) error) error
	begin(p patience) []statement
	// snapshot begins a transaction that only reads, and sees one moment.
	snapshot() []statement
	commit() statement
	rollback() statement
	latch(all []latch) []statement
	// clock reads the database's clock; unless blocks is 0, it also draws that many blocks of numbers, and reads
	// whether there are watchers.
	clock(to *reading, blocks int) []statement

	// drawn reads the latest number that a transaction has drawn.
	drawn(to *uint64) statement

	// sessions reads rows of sessions; with nil all open ones.
	sessions(ids []string, lock bool, each func(*session)) statement
	claims(s *search, each func(region int, c *rows.Claim)) statement
	freezes(each func(table.FreezeRecord)) statement
	holdTimes(paths []lockkeeper.Path, each func(table.HoldTimeRecord)) statement

	// hold locks the rows of sessions, and fails unless they have the versions that were read. It
	// increments the versions, and writes the acknowledgements.
	hold(all []session) []statement
	// putSessions writes new rows, and changed rows that are held.
	putSessions(new, changed []session) []statement
	// putClaims writes new and changed rows, and removes rows.
	putClaims(new, changed []*rows.Claim, gone []lockkeeper.Ref) ([]statement, error)
	putTargets(old, new []targetRow) []statement
	putFreezes(ended []lockkeeper.Path, new []table.FreezeRecord) []statement
	putHoldTimes(all []table.HoldTimeRecord) []statement
	// dropEnded makes the table forget the ended claims of a session; keep: the rows stay for
	// watchers.
	dropEnded(session string, keep bool) statement
	// announceWatcher writes that a process has watchers.
	announceWatcher(process string, until time.Duration) statement
	// listen returns the function that receives notices on one connection until ctx ends, and says
	// to n whether they arrive; nil if the database sends none.
	listen() func(ctx context.Context, e *Engine, n *listening) error
	sendWakeups(wakeups []wakeup, now time.Duration) []statement
	// readWakeups reads the claims that the wakeups of a process name.
	readWakeups(process string, each func(n int, c *rows.Claim)) statement
	removeWakeups(process string, wakeups []int) []statement

	// overdue reads some sessions that should have ended before, and some that have ended and left
	// claims.
	overdue(before time.Duration, each func(id string)) statement
	// purge removes rows that ended before and need not be remembered.
	purge(now, before time.Duration) []statement

	// outcomeOf returns the outcome that an error means. committing: the commit was sent.
	outcomeOf(err error, committing bool) outcome
}

// patience is how long a transaction waits for others, and others for it.
type patience struct {
	latch time.Duration // for a latch, or the row of a session
	idle  time.Duration // between two of its statements; then the database ends it
}

// reading is a reading of the database's clock and sequence.
type reading struct {
	now     time.Duration // since 1970
	numbers uint64        // the numbers above it belong to this transaction, up to the end of its last block
	last    uint64        // the number at which its last block begins
	watched bool          // there are watchers
}

// session is a row of sessions.
type session struct {
	table.SessionRecord
	process string
	attempt string
	version int64 // as it was read
}

// targetRow is a row of targets.
type targetRow struct {
	path lockkeeper.Path
	mode lockkeeper.Mode
	order
}

// search says which claims to read. region is the index of the region in which a claim was found;
// byName or byHold if in none. A claim may be found more than once.
type search struct {
	now      time.Duration
	refs     []lockkeeper.Ref
	inside   []lockkeeper.Ref // claims nested in these
	sessions []string         // all claims of these, ended ones that they may ask for included
	renewed  []string         // the claims of these that a lease states
	regions  []region
	deep     bool // also claims nested in those found in the regions
	limit    int  // claims of each region; 0: all
	most     int  // claims of all regions of one kind; 0: all
	everyone bool
	ended    bool          // ended claims
	since    time.Duration // after this
}

const (
	byName = -1
	byHold = -2 // by a deep search
)

// wakeup asks a process to read a claim again.
type wakeup struct {
	process string
	ref     lockkeeper.Ref
}
