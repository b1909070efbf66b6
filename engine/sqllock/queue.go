package sqllock

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
)

// job is one call on its way through a transaction.
type job struct {
	calls.Call
	session string             // calls of one session run in their order; "": of none
	renews  bool               // it needs no latches
	needs   func(*scope)       // adds to the scope of the transaction
	do      func(*transaction) // runs again if the transaction fails; its results count after the commit

	notUntil time.Time // when to retry it, if a latch stayed taken
	unsure   bool      // an earlier transaction may have committed it
}

// queue has the calls that wait for a transaction. A call waits while another transaction has calls
// of its session.
type queue struct {
	*calls.Queue[*job]
	busy map[string]bool // sessions with started calls; guarded by the mutex of the queue
}

func newQueue() *queue { return &queue{calls.New[*job](), make(map[string]bool)} }

// call runs a job in a transaction, and returns when that is committed: nil, or an ErrUnavailable.
func (e *Engine) call(ctx context.Context, j *job) error { return e.queueOf(j).Do(ctx, j, nil) }

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// take waits for jobs that can start, and starts them; none when the queue is closed. The caller
// must pass them to finish.
func (q *queue) take() []*job { return q.WaitTake(q.policy) }

// policy keeps the calls of one session in their order, and in one transaction at a time.
func (q *queue) policy() func(*job) calls.Verdict {
	now := time.Now()
	starting, kept := make(map[string]bool), make(map[string]bool) // sessions with such jobs
	return func(j *job) calls.Verdict {
		if j.session == "" && !now.Before(j.notUntil) {
			return calls.Start
		}
		if q.busy[j.session] && !starting[j.session] || kept[j.session] || now.Before(j.notUntil) {
			kept[j.session] = j.session != ""
			return calls.Skip
		}
		q.busy[j.session], starting[j.session] = true, true
		return calls.Start
	}
}

// finish ends what take began. The jobs of parked start again later.
func (q *queue) finish(jobs, parked []*job) {
	var at time.Time
	if len(parked) > 0 {
		at = parked[len(parked)-1].notUntil // they rise
	}
	q.Finish(func() {
		for _, j := range jobs {
			delete(q.busy, j.session)
		}
	}, parked, at)
}
