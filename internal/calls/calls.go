// Package calls gathers concurrent calls into transactions, so that they share the cost of a
// commit.
//
// The life of a call:
//
//	        Take            Answer
//	waiting ────> started ─────────> answered
//	   │  <────      │
//	   │   Retry     └ its context ends: it waits up to [Overtime] for the answer,
//	   │               then its outcome is unknown
//	   └ its context ends: it is removed and never starts
//
// Which waiting calls may start together is the policy of the engine: the function that it passes
// to Take. Calls start in the order in which they came, except where the policy lets a call pass
// others.
package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	// MostAtOnce bounds the calls that Take returns, and so the length of a transaction.
	MostAtOnce = 256
	// Overtime is how long a caller whose context has ended waits for the answer of a call that
	// has started. The answer nearly always comes in time, and is better than an unknown outcome.
	Overtime = time.Second
)

var (
	// ErrClosed is the cause of errors of a closed queue.
	ErrClosed = errors.New("the engine is closed")

	errUnknown = errors.New("it had begun when the context ended: whether it happened is not known")
)

// Call is the part of a job that the queue needs. Jobs embed it.
type Call struct {
	answer chan error // has room for the one answer
	number uint64
}

func (c *Call) call() *Call { return c }

// Answer answers the call. It must be called once for every call that Take returned.
func (c *Call) Answer(err error) { c.answer <- err }

// Number rises with every call that is added to a queue.
func (c *Call) Number() uint64 { return c.number }

// Job is a pointer to a struct that embeds [Call].
type Job interface {
	comparable
	call() *Call
}

// Verdict is the decision of a policy about a waiting call.
type Verdict int

// Verdicts.
const (
	Start Verdict = iota // the call starts
	Skip                 // it goes on waiting; calls behind it may start
	Stop                 // it goes on waiting, and so do all calls behind it
)

// Queue has the calls that wait to start. It is safe for concurrent use.
type Queue[J Job] struct {
	// Added is filled when a call is added. It has room for one value.
	Added chan struct{}

	mu      sync.Mutex
	changed *sync.Cond
	waiting []J
	last    uint64
	closed  bool
}

// New returns an empty queue.
func New[J Job]() *Queue[J] {
	q := &Queue[J]{Added: make(chan struct{}, 1)}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Do adds a job and waits for its answer. If ctx ends before the job has started, the job never
// starts, and Do returns the error of gaveUp, or an ErrUnavailable if gaveUp is nil.
func (q *Queue[J]) Do(ctx context.Context, j J, gaveUp func(cause error) error) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	if !q.Add(j) {
		return unavailable(ErrClosed)
	}
	answer := j.call().answer
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	if q.remove(j) {
		if gaveUp != nil {
			return gaveUp(ctx.Err())
		}
		return unavailable(ctx.Err())
	}
	late := time.NewTimer(Overtime)
	defer late.Stop()
	select {
	case err := <-answer:
		return err
	case <-late.C:
		return unavailable(errors.Join(ctx.Err(), errUnknown))
	}
}

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// Add adds a job and does not wait for its answer. It returns false if the queue is closed.
func (q *Queue[J]) Add(j J) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.last++
	*j.call() = Call{answer: make(chan error, 1), number: q.last}
	q.waiting = append(q.waiting, j)
	q.changed.Signal()
	select {
	case q.Added <- struct{}{}:
	default:
	}
	return true
}

// remove removes a waiting job. It returns false if the job has started.
func (q *Queue[J]) remove(j J) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, j)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// Last is the number of the job that was added last.
func (q *Queue[J]) Last() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// Any reports whether a waiting job satisfies is.
func (q *Queue[J]) Any(is func(J) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.waiting, is)
}

// Wait blocks until the queue has a waiting job or is closed.
func (q *Queue[J]) Wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && len(q.waiting) == 0 {
		q.changed.Wait()
	}
}

// Take removes and returns the jobs that policy lets start, in their order. policy is called for
// the waiting jobs in turn, under the mutex of the queue.
func (q *Queue[J]) Take(policy func(J) Verdict) []J {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(policy)
}

func (q *Queue[J]) take(policy func(J) Verdict) (started []J) {
	kept, stopped := q.waiting[:0], false
	for _, j := range q.waiting {
		verdict := Stop
		if !stopped && len(started) < MostAtOnce {
			verdict = policy(j)
		}
		if verdict == Start {
			started = append(started, j)
			continue
		}
		kept, stopped = append(kept, j), verdict == Stop
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
	return started
}

// WaitTake is Take, but blocks until a job may start. It returns nil when the queue is closed.
// newPolicy returns the policy of one attempt; it is called under the mutex of the queue.
func (q *Queue[J]) WaitTake(newPolicy func() func(J) Verdict) []J {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if started := q.take(newPolicy()); len(started) > 0 {
			return started
		}
		q.changed.Wait()
	}
	return nil
}

// Finish reports that started jobs are done, and wakes the callers of WaitTake. change updates the
// state of the policy, under the mutex of the queue. The jobs retry wait again, ahead of all
// others. Finish wakes the callers once more at the time at: a policy that keeps a job of retry
// waiting must let it start from then on, or nothing may wake it.
func (q *Queue[J]) Finish(change func(), retry []J, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	switch {
	case q.closed:
		refuse(retry)
	case len(retry) > 0:
		q.waiting = append(slices.Clone(retry), q.waiting...)
		time.AfterFunc(time.Until(at), q.wake)
	}
	q.changed.Broadcast()
}

// wake wakes the callers of WaitTake. It takes the mutex: a caller that has asked the policy just
// before, and is about to wait, would miss it.
func (q *Queue[J]) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// Close refuses all waiting jobs, and jobs that are added later.
func (q *Queue[J]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	refuse(q.waiting)
	q.waiting = nil
	q.changed.Broadcast()
}

func refuse[J Job](jobs []J) {
	for _, j := range jobs {
		j.call().Answer(unavailable(ErrClosed))
	}
}
