package sqlitelock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/calls"
)

// job is one call on its way through a transaction.
type job struct {
	calls.Call
	reads bool               // it changes nothing
	do    func(*transaction) // runs again if the transaction fails; its results count after the commit
}

// queue has the calls that wait for a transaction.
type queue struct{ *calls.Queue[*job] }

// call runs do in a transaction, and returns when that is committed: nil, or an ErrUnavailable.
func (e *Engine) call(ctx context.Context, reads bool, do func(*transaction)) error {
	if e.db.options.looks && !reads {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: e.db.path + " was opened to look at it alone"}
	}
	return e.queue.Do(ctx, &job{reads: reads, do: do}, func(cause error) error {
		if e.db.blocked.Load() {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: e.db.keptBusy(), Cause: cause}
		}
		return unavailable(cause)
	})
}

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// waiting reports whether calls wait, and whether any of them writes.
func (q queue) waiting() (any, writes bool) {
	return q.Any(func(*job) bool { return true }), q.Any(func(j *job) bool { return !j.reads })
}

// takeAll starts all waiting calls.
func (q queue) takeAll() []*job { return q.Take(func(*job) calls.Verdict { return calls.Start }) }

// takeReads starts the calls that a reading transaction may answer: those before the first that
// writes, up to the one with the number latest. Later callers may know of commits that the
// transaction does not see.
func (q queue) takeReads(latest uint64) []*job {
	return q.Take(func(j *job) calls.Verdict {
		if !j.reads || j.Number() > latest {
			return calls.Stop
		}
		return calls.Start
	})
}
