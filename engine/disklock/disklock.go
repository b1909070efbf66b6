package disklock

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// options are for tests; the zero value is for use.
type options struct {
	driver          string // "sqlite" if empty
	careless        bool   // don't wait for the disk
	snapshotEvery   int    // least number of entries between snapshots
	checkpointPages int    // approximate number of pages in SQLite's log before a checkpoint
	backlog         int64  // bytes that may wait for the disk
	lingering       time.Duration

	// committed, if set, runs in the writer when a row is safe and the mark names it, before the
	// answers to callers.
	committed func(*row)
}

const (
	entriesBetweenSnapshots = 100_000
	pagesBetweenCheckpoints = 500
)

// Engine is one open directory. It is safe for concurrent use.
type Engine struct {
	*keeper.Keeper
	folder  folder
	journal *journal
	once    sync.Once
	closed  error
}

// Open opens a directory, and creates it if it does not exist. The engine begins with the table of
// all safe entries. Its sessions must resume: they have their whole TTL, or the rest of it if they
// did not resume since the previous opening (R19). ctx limits the time of the opening.
//
// If another process has the directory open, Open returns an ErrUnavailable that names the process.
// If a safe entry is missing or damaged, or if the journal has entries under other rules, Open
// returns an ErrInvalid and changes nothing.
func Open(ctx context.Context, dir string) (lockkeeper.Engine, error) {
	e, err := open(ctx, dir, options{})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       "disk",
		Features:   lockkeeper.TableFeatures,
		Reach:      lockkeeper.InProcess,
		Survives:   lockkeeper.SurvivesPowerLoss,
		Fences:     lockkeeper.FencesForever,
		FenceScope: lockkeeper.FencesOverAll,
		Clock:      lockkeeper.ClockProcess,
		Notes:      lockkeeper.Notes{Clock: "it stands still while no process has the directory open"},
		Breaks: "a disk that reports data as written that it has not written; an older copy of the directory in its " +
			"place",
	}
}

// open is Open with options.
func open(ctx context.Context, dir string, o options) (*Engine, error) {
	if o.driver == "" {
		o.driver = "sqlite"
	}
	if o.snapshotEvery == 0 {
		o.snapshotEvery = entriesBetweenSnapshots
	}
	if o.checkpointPages == 0 {
		o.checkpointPages = pagesBetweenCheckpoints
	}
	if o.lingering == 0 {
		o.lingering = lingering
	}
	if o.backlog == 0 {
		o.backlog = backlogBytes
	}
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	e, err := f.open(ctx, o)
	if err != nil {
		f.lock.Unlock()
		return nil, refusal(f.journal(), err)
	}
	return e, nil
}

// open opens the folder, which is locked.
func (f folder) open(ctx context.Context, o options) (*Engine, error) {
	r, err := f.recover(ctx, o)
	if err != nil {
		return nil, err
	}
	if r.moved != "" {
		return nil, f.refuseMoved(r.moved)
	}
	s, err := openStore(f.journal(), dbfolder.Use{Driver: o.driver, Careless: o.careless, Alone: true})
	if err != nil {
		return nil, err
	}
	j := &journal{
		options: o,
		path:    f.journal(),
		store:   s,
		seq:     r.seq,
		chain:   r.chain,
		after:   r.table.Counters(),
		header:  r.header,
		entries: r.entries,
		wakeup:  make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), failed: make(chan struct{}),
		safeRequests: make(chan chan<- safeTable),
	}
	j.linger = time.AfterFunc(o.lingering, j.lingered)
	j.linger.Stop()
	stuck := make(chan struct{})
	j.stuck.Store(&stuck)
	if err := j.open(f, r); err != nil {
		s.close()
		return nil, err
	}
	// The engine's time continues from the last entry: it stands still while there is no engine
	// (R20).
	start, base := time.Now(), r.table.Now()
	e := &Engine{folder: f, journal: j}
	e.Keeper = keeper.NewLogged(guarantees(), func() time.Duration { return base + time.Since(start) }, r.table, j)
	j.takeSnapshot = e.Keeper.Snapshot
	go j.run()
	return e, nil
}

// open starts writing: it marks the database as open, and appends a Restart. Then it checkpoints
// the whole log and so syncs its content again, because after a failed sync of an earlier process
// the system may not have written the log.
func (j *journal) open(f folder, r *recovered) error {
	restart := table.Command{At: r.table.Now(), Op: table.Restart}
	if _, err := r.table.Step(&restart); err != nil {
		return err
	}
	var entries record.Batch
	entries.Append(&restart)
	b := row{
		seq:     j.seq + 1,
		count:   1,
		entries: entries.Bytes(),
		after:   r.table.Counters(),
	}
	b.sum = b.seal(j.chain)
	// The mark comes first, because recover refuses a journal with rows and without a mark.
	var err error
	if j.marker, err = dbfolder.OpenMarker(f.mark(), j.seq, b.after.Fences); err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return dbfolder.SyncFolder(f.path) },
		j.store.prepare,
		func() error { return j.store.Exec("BEGIN IMMEDIATE") },
		func() error {
			return j.store.Exec("UPDATE meta SET state = ?, writer = ?", stateOpen, dbfolder.Writer())
		},
		func() error { return j.store.forgetAll(&r.header) }, // rests of an incomplete or replaced snapshot
		func() error { return j.store.append(&b) },
		func() error { return j.store.Exec("COMMIT") },
		func() error { return j.store.Checkpoint(true) },
	} {
		if err == nil {
			err = do()
		}
	}
	if err != nil {
		j.marker.Close()
		return err
	}
	return j.committed(&b)
}

// ReportCommits sets the function that the writer calls after every commit. entries is the number of
// entries that became safe, took the time of the write and the sync. Callers get their answers
// after report returns, so it must be quick.
func (e *Engine) ReportCommits(report func(entries int, took time.Duration)) {
	e.journal.onCommit.Store(&report)
}

// NotifyRefusal implements lockkeeper.RefusalNotifier. The writer goroutine calls changed.
func (e *Engine) NotifyRefusal(changed func()) { e.journal.changed.Store(&changed) }

// Close commits all entries, writes a snapshot, and unlocks the directory. Sessions that did not
// leave exist again at the next opening.
//
// If a write failed before, Close leaves the directory locked until the process ends: until then
// the system may return cached pages that are not on the disk.
func (e *Engine) Close() error {
	e.once.Do(func() {
		e.Keeper.Close()
		close(e.journal.quit)
		e.journal.linger.Stop()
		<-e.journal.ended
		e.closed = e.journal.result
		e.journal.marker.Close()
		if !e.journal.distrust {
			e.folder.lock.Unlock()
		}
	})
	return e.closed
}

// folder is the directory of a journal. This process has it locked, unless it is a copy for Dump.
type folder struct {
	path string
	lock dbfolder.Lock
}

func (f folder) journal() string { return filepath.Join(f.path, "journal.db") }
func (f folder) log() string     { return dbfolder.LogPath(f.journal()) }
func (f folder) mark() string    { return dbfolder.MarkPath(f.path) }

// lockFolder makes the folder if there is none, and locks it for this process.
func lockFolder(dir string) (folder, error) {
	path, lock, err := dbfolder.LockFolder(dir)
	return folder{path, lock}, err
}
