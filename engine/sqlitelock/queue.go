package sqlitelock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// mostJobs bounds the commands of one transaction, and so its length.
	mostJobs = 256
	// overtime is how long a caller whose context has ended goes on waiting for
	// the answer of a command that has begun: it nearly always comes, and an
	// answer is better than none.
	overtime = time.Second
)

var (
	errClosed   = errors.New("the engine is closed")
	errNoAnswer = errors.New("it had begun when the context ended: whether it happened is not known")
)

// job is one call, on its way through a transaction.
type job struct {
	reads bool               // it changes nothing
	turn  uint64             // in the order of putting
	do    func(*transaction) // may be done again if the transaction fails; what it finds is true only then
	done  chan error         // its end, once
}

// queue holds the calls that have not begun. Several of them are done in one
// transaction, so that they share its cost.
type queue struct {
	bell chan struct{} // something was put in

	mu     sync.Mutex
	jobs   []*job
	turns  uint64 // of the latest job
	closed bool
}

// call has do done in a transaction, and returns when that is committed: nil, or
// an ErrUnavailable. A caller that gives up before it has begun leaves without a trace.
func (e *Engine) call(ctx context.Context, reads bool, do func(*transaction)) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	if e.db.options.looks && !reads {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: e.db.path + " was opened to look at it alone"}
	}
	j := &job{reads: reads, do: do, done: make(chan error, 1)}
	if !e.queue.put(j) {
		return unavailable(errClosed)
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	}
	if e.queue.leave(j) {
		if e.db.blocked.Load() {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: e.db.keptBusy(), Cause: ctx.Err()}
		}
		return unavailable(ctx.Err())
	}
	late := time.NewTimer(overtime)
	defer late.Stop()
	select {
	case err := <-j.done:
		return err
	case <-late.C:
		return unavailable(errors.Join(ctx.Err(), errNoAnswer))
	}
}

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

func (q *queue) put(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.turns++
	j.turn = q.turns
	q.jobs = append(q.jobs, j)
	q.ring()
	return true
}

// latest is the turn of the latest job that was put in.
func (q *queue) latest() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns
}

func (q *queue) ring() {
	select {
	case q.bell <- struct{}{}:
	default:
	}
}

// leave takes j out, and reports whether it was still there.
func (q *queue) leave(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.jobs, j)
	if i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
	}
	return i >= 0
}

// waiting reports whether there are jobs, and whether any of them writes.
func (q *queue) waiting() (any, writes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs) > 0, slices.ContainsFunc(q.jobs, func(j *job) bool { return !j.reads })
}

// take takes out the jobs that begin now, in their order. In a transaction that
// only reads, those are the ones before the first that writes, and no later ones
// than latest: what others committed since it began it does not see, so who has
// heard of that and asks now must not be answered by it.
func (q *queue) take(writes bool, latest uint64) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.jobs) && n < mostJobs && (writes || q.jobs[n].reads && q.jobs[n].turn <= latest) {
		n++
	}
	taken := slices.Clone(q.jobs[:n])
	q.jobs = slices.Delete(q.jobs, 0, n)
	return taken
}

// close refuses all that comes from now on.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}
