package sqllock

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
	session string             // jobs of one session are done one after the other; "": of none
	renews  bool               // it needs no latches
	needs   func(*scope)       // what it has to know at least
	do      func(*transaction) // may be done again if the transaction fails; what it finds is true only then
	done    chan error         // its end, once

	notUntil time.Time // a latch that it needs was taken
	unsure   bool      // it may have been done already: an answer was lost
}

// queue holds the calls that have not begun. Several of them are done in one
// transaction, so that they share its cost.
type queue struct {
	mu     sync.Mutex
	more   *sync.Cond // something was put in, or a session is free again
	jobs   []*job
	busy   map[string]bool // sessions of which a job is being done
	closed bool
}

func newQueue() *queue {
	q := &queue{busy: make(map[string]bool)}
	q.more = sync.NewCond(&q.mu)
	return q
}

// call has a job done, and returns when that is committed: nil, or an
// ErrUnavailable. A caller that gives up before it has begun leaves without a trace.
func (e *Engine) call(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	j.done = make(chan error, 1)
	q := e.queueOf(j)
	if !q.put(j) {
		return unavailable(errClosed)
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	}
	if q.leave(j) {
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

func (q *queue) put(jobs ...*job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.jobs = append(q.jobs, jobs...)
	q.more.Signal()
	return true
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

// take waits for jobs that can begin, and takes them out in their order; none when
// the queue is closed. Their sessions are busy until they are given to finish.
func (q *queue) take() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if taken := q.ready(); len(taken) > 0 {
			return taken
		}
		q.more.Wait()
	}
	return nil
}

// await waits for a job, or until the queue is closed.
func (q *queue) await() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && len(q.jobs) == 0 {
		q.more.Wait()
	}
}

func (q *queue) ready() (taken []*job) {
	now := time.Now()
	kept := q.jobs[:0]
	behind := make(map[string]bool) // sessions of which a job stays
	for _, j := range q.jobs {
		if len(taken) == mostJobs || j.session != "" && (q.busy[j.session] || behind[j.session]) || now.Before(j.notUntil) {
			behind[j.session] = j.session != ""
			kept = append(kept, j)
		} else {
			taken = append(taken, j)
		}
	}
	clear(q.jobs[len(kept):])
	q.jobs = kept
	for _, j := range taken {
		if j.session != "" {
			q.busy[j.session] = true
		}
	}
	return taken
}

// finish frees the sessions of jobs, and takes those back that are to be tried again.
func (q *queue) finish(jobs, again []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range jobs {
		delete(q.busy, j.session)
	}
	if len(again) > 0 && !q.closed {
		q.jobs = append(slices.Clone(again), q.jobs...)
		time.AfterFunc(time.Until(again[0].notUntil), q.more.Broadcast)
	} else {
		for _, j := range again {
			j.done <- unavailable(errClosed)
		}
	}
	q.more.Broadcast()
}

// close refuses all that is there and all that comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, j := range q.jobs {
		j.done <- unavailable(errClosed)
	}
	q.jobs = nil
	q.more.Broadcast()
}
