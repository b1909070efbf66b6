// Package keeper runs a table: it gives the table the time, serialises commands, lets
// time pass when something falls due, and notifies sessions and watchers of changes to
// their claims.
//
// A Keeper is a lockkeeper.Engine. Callers apply their commands under one mutex, and a
// single timer lets time pass. A keeper without a log has no goroutine: a caller delivers
// the notifications of its step after it has released the mutex.
//
// With a [Log], a step takes this way:
//
//	Admit ─> mutex: Step, Append ─> answer at once:  Renew, Release, Leave
//	                    │
//	                 Commit ─ safe ─> answer:  Attach, Claim and its refusals, operators, lists
//	                    │             notify:  sessions, then watchers
//	                    └─ failed ──> ErrUnavailable to all; watchers end; every session is
//	                                  notified that it may have missed changes
//
// So no caller, session or watcher learns of a state that a crash can undo. The exceptions are
// renewals, releases and departures: a crash may lose them, and that is harmless (see [Log]).
//
// A [View] does the second half of that, lists and notifications, for a table that others step.
package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Keeper keeps one table in this process. It is safe for concurrent use.
type Keeper struct {
	publisher
	guarantees lockkeeper.Guarantees

	// Guarded by mu.
	command table.Command // of the current step; fields that its Op does not use are stale
	timer   *time.Timer
	timerAt time.Duration // when timer fires; lockkeeper.Forever if never
	slots   slots
}

// New returns a Keeper of an empty table. clock is the engine's time: it must be
// monotonic, safe for concurrent use, and 0 or more.
func New(g lockkeeper.Guarantees, clock func() time.Duration) *Keeper {
	return &Keeper{
		publisher:  newPublisher(clock),
		guarantees: g,
		timerAt:    lockkeeper.Forever,
	}
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
	lease, news, commit, err := k.stepAttach(s, notify)
	commit = k.unlockDecided(news, commit, err)
	if err = k.safely(ctx, commit, err); err != nil {
		return lockkeeper.Lease{}, err
	}
	return lease, nil
}

// stepAttach applies an Attach. The caller holds the mutex.
func (k *Keeper) stepAttach(s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease, *news, *Commit,
	error) {
	k.moveSession(s.ID)
	k.command.Op, k.command.Session = table.Attach, k.table.DropUnknown(s)
	reply, err := k.table.Step(&k.command)
	news, commit := k.gatherStep("", err) // before Put: the former owner is notified of its losses
	if err == nil {
		k.closeSlots(s.ID)
		k.closeNews(s.ID)
		k.sessions.Put(s.ID, &attached.Attachment[struct{}]{Epoch: reply.Lease.Key.Epoch, Notify: notify})
		k.sessions.Sweep(func(id string, _ *attached.Attachment[struct{}]) bool { return !k.table.Open(id) })
	}
	return reply.Lease, news, commit, err
}

// Renew implements lockkeeper.Engine. With a log it returns at once, unless the lease shows a
// change that is not safe yet. A crash may lose the renewal. That is harmless: the session's Attach
// is safe, so after the restart the session has its whole TTL again (R19).
func (k *Keeper) Renew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, commit, err := k.renew(ctx, key)
	if err = k.safely(ctx, commit, err); err != nil {
		return lockkeeper.Lease{}, err
	}
	return lease, nil
}

// renew is Renew up to the commit that the answer waits for.
func (k *Keeper) renew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, *Commit, error) {
	if err := k.lock(ctx, false); err != nil {
		return lockkeeper.Lease{}, nil, err
	}
	k.moveSession(key.Session)
	k.command.Op, k.command.Key = table.Renew, key
	reply, err := k.table.Step(&k.command)
	unsafe := err == nil && k.showsUnsafe(reply.Lease.Claims)
	commit := k.unlock("", err)
	if !unsafe {
		commit = nil
	}
	return reply.Lease, commit, err
}

// Claim implements lockkeeper.Engine.
func (k *Keeper) Claim(ctx context.Context, key lockkeeper.Key, w lockkeeper.Want) (st lockkeeper.Status, err error) {
	commit, err := k.claim(ctx, &key, &w, &st)
	if err = k.safely(ctx, commit, err); err != nil {
		st = lockkeeper.Status{}
	}
	return st, err
}

// claim is Claim up to the commit that the answer waits for. It writes the answer to st.
func (k *Keeper) claim(ctx context.Context, key *lockkeeper.Key, w *lockkeeper.Want, st *lockkeeper.Status) (*Commit,
	error) {
	if err := k.guarantees.Refuse(w); err != nil {
		return nil, err
	}
	if err := k.lock(ctx, true); err != nil {
		return nil, err
	}
	k.beforeClaim(*key, w)
	k.command.Op, k.command.Key, k.command.Want = table.Claim, *key, *w
	reply, err := k.table.Step(&k.command)
	*st = reply.Status
	news, commit := k.gatherStep("", err)
	return k.unlockDecided(news, commit, err), err
}

// End implements lockkeeper.Engine. With a log, Release and Leave return at once. If a crash loses
// one, the session has the claim again after the restart, until its client resumes without naming
// the claim or the session expires (R19). For an operator's ending or a lapse End waits until it is
// safe, because no client would repeat it. Admit accepts a lapse even while the log can make
// nothing safe.
func (k *Keeper) End(ctx context.Context, key lockkeeper.Key, e lockkeeper.Ending) error {
	commit, err := k.end(ctx, key, e)
	return k.safely(ctx, commit, err)
}

// end is End up to the commit that the answer waits for.
func (k *Keeper) end(ctx context.Context, key lockkeeper.Key, e lockkeeper.Ending) (*Commit, error) {
	lasts := e.Kind != lockkeeper.Release && e.Kind != lockkeeper.Leave
	if err := k.lock(ctx, lasts && e.Kind != lockkeeper.Lapsed); err != nil {
		return nil, err
	}
	k.beforeEnd(key, &e)
	k.command.Op, k.command.Key, k.command.Ending = table.End, key, e
	_, err := k.table.Step(&k.command)
	left := ""
	if e.Kind == lockkeeper.Leave && err == nil {
		left = key.Session
		k.sessions.Remove(left, key.Epoch)
	}
	commit := k.unlock(left, err)
	if !lasts || err != nil {
		commit = nil
	}
	return commit, err
}

// Close implements lockkeeper.Engine. The table does not change any more. Calls that wait for the
// log continue to wait; the owner of the log closes the log.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.log != nil && !k.closed {
		close(k.record.quit)
	}
	k.closed = true
	for id := range k.slots.sessions { // order does not matter: all of them
		k.closeSlots(id)
	}
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

// lock locks the mutex for one command, and sets the command's time. relies is the parameter of
// Log.Admit. After an error the mutex is not locked.
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
		err = k.record.broken // the log failed after Admit
	}
	if err != nil {
		k.mu.Unlock()
		return err
	}
	k.command.At = k.clock()
	return nil
}

// unlock unlocks the mutex after a step, and delivers the step's notifications. They omit the claim
// of the command and all claims of the session own, because the reply informs the caller about
// these. refused is the error with which the table refused the command.
func (k *Keeper) unlock(own string, refused error) *Commit {
	news, commit := k.gatherStep(own, refused)
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return commit
}

// unlockDecided unlocks the mutex after a step, delivers news, and returns the commit that the
// answer waits for. A refusal waits for all entries so far, because it may rely on one of them: on
// another attach, or on the end of this session.
func (k *Keeper) unlockDecided(news *news, commit *Commit, refused error) *Commit {
	if refused != nil {
		commit = k.record.last
	}
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return commit
}

// gatherStep returns the notifications of a step, which the caller delivers after it has unlocked
// the mutex. With a log it appends the step instead and returns its commit; deliverCommitted
// delivers the notifications when the commit is safe.
func (k *Keeper) gatherStep(own string, refused error) (*news, *Commit) {
	if k.log == nil {
		return k.gatherNew(&k.command, own, refused == nil, k.command.At), nil
	}
	return nil, k.appendStep(own, refused)
}

// pass is the function of the timer. It steps the table with a Pass, so that due timers fire.
func (k *Keeper) pass() {
	if k.lock(context.Background(), false) != nil {
		k.retryPass()
		return
	}
	k.timerAt = lockkeeper.Forever
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	_, _ = k.table.Step(&k.command) // a Pass is never refused
	k.unlock("", nil)
}

// retryPass sets the timer to try pass again soon, because the log refuses entries.
func (k *Keeper) retryPass() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.timerAt = k.clock() + passRetryPause
	k.timer.Reset(passRetryPause)
}

const passRetryPause = 200 * time.Millisecond

// arm sets the timer to the next instant at which a timer of the table fires or the log must record
// the time. It leaves a timer that fires earlier, which then changes nothing and arms again.
func (k *Keeper) arm() {
	at, _ := k.table.Next()
	if at = min(at, k.recordAt()); at >= k.timerAt {
		return
	}
	k.timerAt = at
	wait := max(at-k.clock(), 0)
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.pass)
	} else {
		k.timer.Reset(wait)
	}
}
