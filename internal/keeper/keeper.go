// Package keeper runs a table: it gives it the time, serialises commands, lets
// time pass when something falls due, and notifies sessions and watchers of
// changes to their claims.
//
// A Keeper is a lockkeeper.Engine. Callers apply their commands under one mutex,
// and a single timer lets time pass.
//
// A keeper without a log has no goroutine of its own: whoever made something
// happen delivers the news after it has let go of the mutex. With a [Log], nothing
// that somebody may rely on is told before the log has it safe, see log.go.
package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/watching"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Keeper keeps one table in this process. It is safe for concurrent use.
type Keeper struct {
	guarantees lockkeeper.Guarantees
	clock      func() time.Duration // the engine's time; never goes back

	explaining chan struct{} // holds one while a claim is explained; taken before mu
	staleList  sync.Mutex    // held while a list reads the log's safe table

	mu        sync.Mutex // guards all below; never held while a notify runs
	table     *table.Table
	command   table.Command // the one at hand; fields that its Op does not look at are left over
	sessions  attached.Sessions[struct{}]
	watchers  watching.Index[*watcher]
	changes   uint64 // the number of the latest change
	allowance allowance
	timer     *time.Timer
	alarm     time.Duration // when timer fires; lockkeeper.Forever if it doesn't
	closed    bool

	log    Log // nil: nothing outlives this process
	record record
}

// New returns a Keeper of an empty table. clock is the engine's time: it must be
// monotonic, safe for concurrent use, and 0 or more.
func New(g lockkeeper.Guarantees, clock func() time.Duration) *Keeper {
	k := &Keeper{
		guarantees: g, clock: clock, table: table.New(), alarm: lockkeeper.Forever,
		explaining: make(chan struct{}, 1),
		allowance:  allowance{left: mostLooks},
	}
	return k
}

// Guarantees implements lockkeeper.Engine.
func (k *Keeper) Guarantees() lockkeeper.Guarantees { return k.guarantees }

// Attach implements lockkeeper.Engine.
func (k *Keeper) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := s.Check(k.guarantees.NoExpiry); err != nil {
		return lockkeeper.Lease{}, err
	}
	if err := k.lock(ctx, true); err != nil {
		return lockkeeper.Lease{}, err
	}
	k.command.Op, k.command.Session = table.Attach, k.table.Concerned(s)
	reply, err := k.table.Step(&k.command)
	news, commit := k.settle("", err) // whoever had the session before is told what it lost
	if err == nil {
		k.closeNews(s.ID)
		k.sessions.Put(s.ID, &attached.Attachment[struct{}]{Epoch: reply.Lease.Key.Epoch, Notify: notify})
		k.sessions.Sweep(func(id string, _ *attached.Attachment[struct{}]) bool { return !k.table.Open(id) })
	}
	if err != nil {
		commit = k.record.last // a refusal tells the epoch of another attach
	}
	k.arm()
	k.mu.Unlock()
	news.deliver()
	if lost := k.safe(ctx, commit); lost != nil {
		err = lost
	}
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	return reply.Lease, nil
}

// Renew implements lockkeeper.Engine. With a log it is answered at once, unless it
// tells of what is not safe yet: a renewal that is lost harms nobody, since the session's Attach
// is safe, so after a restart it has its whole TTL ahead, from a later moment on (R19).
func (k *Keeper) Renew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, error) {
	if err := k.lock(ctx, false); err != nil {
		return lockkeeper.Lease{}, err
	}
	k.command.Op, k.command.Key = table.Renew, key
	reply, err := k.table.Step(&k.command)
	fresh := err == nil && k.tellsUnsafe(reply.Lease.Claims)
	commit := k.unlock("", err)
	if fresh {
		err = k.safe(ctx, commit)
	}
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	return reply.Lease, nil
}

// Claim implements lockkeeper.Engine.
func (k *Keeper) Claim(ctx context.Context, key lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := k.guarantees.Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := k.lock(ctx, true); err != nil {
		return lockkeeper.Status{}, err
	}
	k.command.Op, k.command.Key, k.command.Want = table.Claim, key, w
	reply, err := k.table.Step(&k.command)
	commit := k.unlock("", err)
	if err == nil {
		err = k.safe(ctx, commit)
	}
	if err != nil {
		return lockkeeper.Status{}, err
	}
	return reply.Status, nil
}

// End implements lockkeeper.Engine. With a log, Release and Leave are answered at
// once: if one is lost, the session is there again after a restart, and ends what
// it does not name, or ends itself (R19). End waits until an operator's ending or a
// lapse is safe, because no client would repeat it.
func (k *Keeper) End(ctx context.Context, key lockkeeper.Key, e lockkeeper.Ending) error {
	lasts := e.Kind != lockkeeper.Release && e.Kind != lockkeeper.Leave
	if err := k.lock(ctx, lasts && e.Kind != lockkeeper.Lapsed); err != nil {
		return err
	}
	k.command.Op, k.command.Key, k.command.Ending = table.End, key, e
	_, err := k.table.Step(&k.command)
	left := ""
	if e.Kind == lockkeeper.Leave && err == nil {
		left = key.Session
		k.sessions.Remove(left, key.Epoch)
	}
	commit := k.unlock(left, err)
	if lasts && err == nil {
		err = k.safe(ctx, commit)
	}
	return err
}

// Close implements lockkeeper.Engine: nothing happens in the table any more. Calls
// that wait for the log go on waiting for it; closing the log is its owner's task.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.log != nil && !k.closed {
		close(k.record.quit)
	}
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	for w := range k.watchers.All() {
		w.wake()
	}
	k.sessions.Clear()
	return nil
}

var errClosed = errors.New("the engine is closed")

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// lock takes the mutex for one command, and gives it the time. relies says that
// its answer will wait for the log. After an error the mutex is not held.
func (k *Keeper) lock(ctx context.Context, relies bool) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	if k.log != nil {
		if err := k.log.Admit(relies); err != nil {
			return err
		}
	}
	k.mu.Lock()
	var err error
	if k.closed {
		err = unavailable(errClosed)
	} else {
		err = k.record.broken // since it was let in: nobody tells it of that any more
	}
	if err != nil {
		k.mu.Unlock()
		return err
	}
	k.command.At = k.clock()
	return nil
}

// unlock ends what lock began, and tells everybody concerned what the command
// did. Its caller knows from the reply what became of its own claim, and of all
// of its session if that is named as own; with a log, once the commit is safe.
// refused is the error with which the command was refused.
func (k *Keeper) unlock(own string, refused error) *Commit {
	news, commit := k.settle(own, refused)
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return commit
}

// settle gathers what a step has to tell, to be delivered when the mutex is let
// go of. With a log there is nothing to deliver yet: it comes with the commit.
func (k *Keeper) settle(own string, refused error) (*news, *Commit) {
	if k.log == nil {
		return k.collect(own), nil
	}
	return nil, k.enter(own, refused)
}

// pass lets time pass because something fell due.
func (k *Keeper) pass() {
	if k.lock(context.Background(), false) != nil {
		k.passAgain()
		return
	}
	k.alarm = lockkeeper.Forever
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	// A Pass is never refused.
	_, _ = k.table.Step(&k.command)
	k.unlock("", nil)
}

// passAgain has time pass a little later, since the log takes nothing at present.
func (k *Keeper) passAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.alarm = k.clock() + pauseOfPass
	k.timer.Reset(pauseOfPass)
}

const pauseOfPass = 200 * time.Millisecond

// arm sets the timer to the next moment at which something falls due or the log must record the
// time. It does not change a timer that fires earlier: that one finds nothing due and arms again.
func (k *Keeper) arm() {
	at, _ := k.table.Next()
	if at = min(at, k.recordAt()); at >= k.alarm {
		return
	}
	k.alarm = at
	wait := max(at-k.clock(), 0)
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.pass)
	} else {
		k.timer.Reset(wait)
	}
}
