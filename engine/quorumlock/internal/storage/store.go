package storage

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

//go:embed schema.sql
var statements string

const (
	applicationID = 0x6c6b636e // "lkcn"
	schemaVersion = 1
	pageSize      = 8192

	// pagesBetweenCheckpoints is about how many pages SQLite's log has before it is moved into the
	// database: 4 MB.
	pagesBetweenCheckpoints = 500

	commitPages = 4 // pages of a small transaction, about
)

var schema = dbfolder.NewSchema(applicationID, schemaVersion, pageSize, statements)

// options are for tests; the zero value is for use.
type options struct {
	careless        bool // don't wait for the disk
	moved           bool // accept a copy
	checkpointPages int  // instead of pagesBetweenCheckpoints

	// committed, if set, is called when a transaction is durable, and the mark names it; for the first
	// one, which only states that the folder is open, before the mark does.
	committed func(commits uint64)
	// checkpointed, if set, is called after each checkpoint.
	checkpointed func()
}

// A Store is the open folder of a node. It is safe for concurrent use; calls wait for each other.
type Store struct {
	options options
	folder  folder
	node    Identity
	opened  uint64

	mu       sync.Mutex
	db       *dbfolder.DB
	begins   *sql.Stmt // a transaction
	commits  *sql.Stmt
	inserts  *sql.Stmt        // an entry
	replaces *sql.Stmt        // the progress
	marker   *dbfolder.Marker // nil before the first commit
	progress progress
	snapshot snapshotRow // without conf and data
	pages    int         // of SQLite's log, about
	failed   error       // why no call works any more; nil while the Store works
}

// Identity returns which node this is.
func (s *Store) Identity() Identity { return s.node }

// Opened returns how often a process has opened the folder, including this one. A node that has seen
// a higher number of the same id knows that this folder is an older copy.
func (s *Store) Opened() uint64 { return s.opened }

// State reads what the disk has, and checks it as Open does.
func (s *Store) State() (replica.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return replica.State{}, s.failed
	}
	c, err := readContent(context.Background(), s.db)
	if err != nil {
		return replica.State{}, refusal(s.folder.database(), err)
	}
	return c.state, nil
}

// Write makes the writes durable, in their order, in one transaction. It returns when all of them
// are. The error is one of
//
//	ErrFull    the disk is full. Nothing of the call is durable. The caller repeats these writes before
//	           all later ones, when there is room; it may add later ones behind them.
//	ErrFailed  nobody knows what is durable. The caller stops the replica.
//	ErrClosed
//
// A write that no replica makes, such as entries with a gap before them, is an ErrFailed, too.
func (s *Store) Write(writes []replica.Write) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(writes) == 0 {
		return s.failed
	}
	return s.commit(func(t *transaction) error {
		for i := range writes {
			if err := t.apply(&writes[i]); err != nil {
				return fmt.Errorf("write %d: %w", writes[i].Number, err)
			}
		}
		return nil
	})
}

// commit executes one transaction, and then the work that is due.
func (s *Store) commit(do func(t *transaction) error) error {
	if s.failed != nil {
		return s.failed
	}
	t := &transaction{
		db: s.db, node: s.node.sum(), progress: s.progress, snapshot: s.snapshot,
		insert: execPrepared(s.inserts), replace: execPrepared(s.replaces),
	}
	_, err := s.begins.Exec()
	if err == nil {
		err = do(t)
	}
	if err == nil {
		err = t.finish()
	}
	if err == nil {
		_, err = s.commits.Exec()
	}
	switch {
	case err == nil:
	case dbfolder.IsFull(err):
		_ = s.db.Exec("ROLLBACK") // after some errors SQLite has rolled back already
		return fmt.Errorf("%w on the file system of %s: %w", ErrFull, s.folder.database(), err)
	default:
		return s.fail(err)
	}
	if err := s.db.Sync(); err != nil {
		return s.fail(err)
	}
	s.progress, s.snapshot = t.progress, t.snapshot
	s.pages += t.bytes/pageSize + commitPages
	if s.marker != nil {
		// Go on without the mark, such as on a full disk: it only helps Open to detect losses.
		_ = s.marker.Write(s.progress.commits, uint64(s.node.sum()))
	}
	if s.options.committed != nil {
		s.options.committed(s.progress.commits)
	}
	return s.checkpointIfDue()
}

// prepare prepares the statements of a commit.
func (s *Store) prepare() (err error) {
	for _, p := range []struct {
		statement **sql.Stmt
		text      string
	}{
		{&s.begins, "BEGIN IMMEDIATE"}, {&s.commits, "COMMIT"}, {&s.inserts, insertEntry}, {&s.replaces, replaceProgress},
	} {
		if *p.statement, err = s.db.Prepare(p.text); err != nil {
			return err
		}
	}
	return nil
}

func execPrepared(s *sql.Stmt) func(...any) error {
	return func(columns ...any) error {
		_, err := s.Exec(columns...)
		return err
	}
}

// fail ends the use of the disk for good. The connection stays open, and the folder locked, until
// the process ends: closing would write.
func (s *Store) fail(err error) error {
	s.failed = fmt.Errorf("%w: %s: %w", ErrFailed, s.folder.database(), err)
	return s.failed
}

// checkpointIfDue keeps SQLite's log short.
func (s *Store) checkpointIfDue() error {
	if s.pages < s.options.checkpointPages {
		return nil
	}
	s.pages = 0
	if err := s.db.Checkpoint(false); err != nil && !dbfolder.IsFull(err) { // full: the log grows; tries again later
		return s.fail(err)
	}
	if s.options.checkpointed != nil {
		s.options.checkpointed()
	}
	return nil
}

// Close closes the folder, and lets other processes have it. All that was durable stays. If a Write
// failed before, Close returns the reason, and the folder stays locked until the process ends.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close(func() error { return nil })
}

// close is Close, with a last step before other processes may have the folder.
func (s *Store) close(last func() error) error {
	if s.failed != nil {
		return s.failed
	}
	err := s.commit(func(t *transaction) error {
		t.progress.state = stateClosed
		return nil
	})
	if err == nil {
		err = s.db.Checkpoint(true)
	}
	if s.failed == nil && err != nil && !dbfolder.IsFull(err) {
		return s.fail(err)
	}
	if s.failed != nil {
		return s.failed
	}
	s.failed = ErrClosed // a full disk leaves it open, as a crash does: nothing is missing
	err = s.db.Close()
	s.marker.Close()
	if err == nil {
		err = last()
	}
	s.folder.lock.Unlock()
	return err
}
