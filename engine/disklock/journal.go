package disklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// Bounds of the entries that wait for the disk.
const (
	batchBytes   = 1 << 20  // approximate size of one row
	backlogBytes = 64 << 20 // size of all batches; Admit refuses commands beyond it
)

// lingering is how long entries for which nobody waits stay in memory at most, before the writer
// takes them: renewals, releases and departures, which are answered at once. So a release mostly
// shares the commit of the next claim.
const lingering = 5 * time.Millisecond

// A batch becomes one row of the journal.
type batch struct {
	entries record.Batch
	count   int
	after   table.Counters
	commit  *keeper.Commit
}

// journal is the keeper's log. Append only encodes. One goroutine, the writer, commits the batches
// in their order (see the package comment).
type journal struct {
	options options
	path    string

	mu      sync.Mutex
	batches []*batch // oldest first; the last one is open unless it is sealed
	sealed  bool
	armed   bool   // linger will wake the writer
	spare   []byte // memory for the next batch

	backlog  atomic.Int64 // bytes in batches, including the one that the writer commits
	refusing atomic.Pointer[refusing]
	wakeup   chan struct{} // filled when the writer is to write what there is
	linger   *time.Timer   // wakes the writer for entries for which nobody waits
	quit     chan struct{} // closed to end the writer
	ended    chan struct{} // closed by the writer
	failed   chan struct{} // closed by the writer after an error that it can't retry
	result   error         // of the writer; read after ended
	stats    stats
	stuck    atomic.Pointer[chan struct{}] // closed while Admit refuses commands for a reason that may end
	changed  atomic.Pointer[func()]        // called when that begins or ends; may be nil
	// requests for the safe table, while the disk is full
	safeRequests chan chan<- safeTable
	onCommit     atomic.Pointer[func(entries int, took time.Duration)] // called after each commit; may be nil

	// Only the writer uses the fields below.
	store        *store
	marker       *dbfolder.Marker
	takeSnapshot func(func(table.Snapshot)) // takes a snapshot of the keeper's table
	seq          uint64
	chain        uint64
	after        table.Counters
	header       header // the newest complete snapshot
	entries      int    // entries since that snapshot
	pages        int    // approximate number of pages in SQLite's log
	snapshot     *snapshot
	tries        uint64     // abandoned snapshots since header; their numbers are not used again
	safe         *safeTable // the safe table, if a caller requested it since the disk became full
	distrust     bool       // after a failed write: the system's view of the files may be wrong
}

// stats are for people. Any goroutine may read them.
type stats struct {
	syncs   atomic.Int64 // committed batches
	entries atomic.Int64
	last    atomic.Int64 // time of the last commit in Unix nanoseconds; 0: never
	mark    atomic.Pointer[error]
}

var errBacklog = errors.New("too many entries wait for it")

// Admit implements keeper.Log.
func (j *journal) Admit(relies bool) error {
	if t := j.refusing.Load(); t != nil && (relies || !t.passing) {
		return t.err
	}
	if j.backlog.Load() > j.options.backlog {
		return unavailable(errBacklog, "the disk of %s is too slow, or full", j.path)
	}
	return nil
}

// Failed implements keeper.Log.
func (j *journal) Failed() <-chan struct{} { return j.failed }

// Stuck implements keeper.Log.
func (j *journal) Stuck() <-chan struct{} { return *j.stuck.Load() }

// safeTable is the table of all safe rows, or the error of reading it.
type safeTable struct {
	table *table.Table
	err   error
}

// Safe implements keeper.Log.
func (j *journal) Safe(ctx context.Context) (*table.Table, error) {
	answer := make(chan safeTable, 1)
	select {
	case j.safeRequests <- answer:
	case <-j.ended:
		return nil, unavailable(nil, "the journal %s is written no more", j.path)
	case <-ctx.Done():
		return nil, unavailable(ctx.Err(), "the journal %s is written, or can't be read now", j.path)
	}
	select {
	case safe := <-answer:
		return safe.table, safe.err
	case <-ctx.Done():
		return nil, unavailable(ctx.Err(), "the journal %s is still being read", j.path)
	}
}

// Append implements keeper.Log.
func (j *journal) Append(c *table.Command, after table.Counters) *keeper.Commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.openBatch()
	before := len(b.entries.Bytes())
	b.entries.Append(c)
	b.count++
	b.after = after
	j.backlog.Add(int64(len(b.entries.Bytes()) - before))
	if t := j.refusing.Load(); t != nil && !t.passing {
		return failedCommit(t.err) // the writer has ended
	}
	if b.count == 1 && !j.armed {
		j.armed = true
		j.linger.Reset(j.options.lingering)
	}
	return b.commit
}

// StartCommit implements keeper.Log.
func (j *journal) StartCommit() { wake(j.wakeup) }

// lingered wakes the writer if it has not taken all entries since linger was set.
func (j *journal) lingered() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed = false
	if len(j.batches) > 0 {
		wake(j.wakeup)
	}
}

// failedCommit returns a commit that has ended with err.
func failedCommit(err error) *keeper.Commit {
	c := keeper.NewCommit()
	c.End(err)
	return c
}

func wake(wakeup chan struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// openBatch returns the batch for the next entry.
func (j *journal) openBatch() *batch {
	if n := len(j.batches); n > 0 && !j.sealed && len(j.batches[n-1].entries.Bytes()) < batchBytes {
		return j.batches[n-1]
	}
	b := &batch{entries: record.NewBatch(j.spare), commit: keeper.NewCommit()}
	j.spare, j.sealed = nil, false
	j.batches = append(j.batches, b)
	return b
}

// next removes and returns the oldest batch; nil if there is none.
func (j *journal) next() *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.batches) == 0 {
		return nil
	}
	b := j.batches[0]
	j.batches[0] = nil
	j.batches = j.batches[1:]
	return b
}

// recycle keeps the memory of a safe batch for a later one.
func (j *journal) recycle(b *batch) {
	room := b.entries.Bytes()
	j.backlog.Add(-int64(len(room)))
	j.mu.Lock()
	defer j.mu.Unlock()
	if cap(room) <= batchBytes {
		j.spare = room
	}
}

// beginSnapshot takes a snapshot of the table, and seals the open batch in the same step, so that
// the snapshot contains exactly the entries of all batches so far.
func (j *journal) beginSnapshot() {
	if j.snapshot != nil && !j.snapshot.done {
		j.tries++ // Close abandons the unfinished snapshot
	}
	j.takeSnapshot(func(content table.Snapshot) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.sealed = true
		j.snapshot = &snapshot{
			content: content,
			lowest:  j.header.seq,
			header: header{
				number: j.header.number + 1 + j.tries, seq: j.seq + uint64(len(j.batches)),
				claims: len(content.Claims), head: record.AppendHeader(nil, &content),
			},
		}
	})
	j.checkReached()
}

// checkReached lets the writer write the snapshot once all rows that it contains are committed.
func (j *journal) checkReached() {
	if sn := j.snapshot; sn != nil && !sn.reached && j.seq == sn.seq {
		sn.reached, sn.chain = true, j.chain
	}
}

// snapshotDue reports whether it is time for a snapshot.
func (j *journal) snapshotDue() bool {
	return j.snapshot == nil && j.entries > max(j.options.snapshotEvery, 4*j.header.claims)
}
