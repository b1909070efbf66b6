package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Log makes the claims of a keeper outlive its process. Its entries, applied in order to the
// table with which the keeper began, give the keeper's table again, because a command contains its
// time and everything else on which its effect depends.
//
// The keeper applies a command and appends it in one step, so the entries are in the order of the
// steps. The effects of an entry become visible only when the entry is safe in the log. This holds
// for the answers to Attach, Claim and operators, for notifications, and for the statuses in lists
// and leases. The keeper answers renewals, releases and departures before they are safe. If a crash
// loses one of these, its session keeps its claims for at most one TTL longer, which is harmless.
type Log interface {
	// Admit returns nil if the log accepts a command, else an ErrUnavailable with the reason. While
	// the log can make nothing safe, it refuses commands with relies, which are those that can
	// grant or whose answer must be safe. Admit is safe for concurrent use, and must not wait.
	Admit(relies bool) error

	// Stuck returns a channel that is closed while Admit refuses commands with relies, because
	// entries may take long to become safe. After that time it returns another channel.
	Stuck() <-chan struct{}

	// Safe returns the table of all safe entries while the log is stuck. That table no longer
	// changes, but callers must not use it concurrently. If the log is not stuck, or ctx ends
	// first, Safe returns an ErrUnavailable.
	Safe(ctx context.Context) (*table.Table, error)

	// Append makes c the next entry. after has the table's counters after c. One goroutine at a
	// time calls it. It must not wait for a disk or a network, and must not keep c or anything that
	// c refers to. The returned commit ends when the entry and all before it are safe, or never
	// will be.
	Append(c *table.Command, after table.Counters) *Commit

	// StartCommit makes the log commit the entries so far as soon as it can, because somebody waits for
	// them. Other entries may wait for more to share their commit, but only a bounded time. StartCommit is
	// safe for concurrent use, and must not wait.
	StartCommit()

	// Failed is closed when the log can never make anything safe again. From then on Admit
	// returns the reason for every command.
	Failed() <-chan struct{}
}

// A Commit is one or more entries that a log makes safe together. It is safe for concurrent use.
type Commit struct {
	done chan struct{}
	err  error
}

// NewCommit returns a commit that has not ended.
func NewCommit() *Commit { return &Commit{done: make(chan struct{})} }

// End ends the commit; call it once. A nil error means that all its entries and all before them are
// safe. Another error means that entries may be lost; then every later commit must end with an
// error.
func (c *Commit) End(err error) {
	c.err = err
	close(c.done)
}

// Done is closed when the commit has ended.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err returns the error with which the commit ended. Do not call it before Done is closed.
func (c *Commit) Err() error { return c.err }

// recordInterval is the longest interval at which the log records the engine's time while a session
// with a TTL has to resume (R19). After a crash the engine's time continues from the last recorded
// one, so each crash extends such a session by up to one interval: if the engine dies every 2 s, a
// session with a TTL of 30 s lives up to 15 intervals longer.
const recordInterval = 100 * time.Millisecond

// logState is the keeper's state of its log. publisher.mu guards it, except for the channels.
type logState struct {
	last        *Commit       // commit of the latest entry; nil if there was none
	at          time.Duration // time of the latest entry
	latest      *Commit       // commit of the latest step with events; nil if there was none
	safeChanges uint64        // changes up to this number are safe
	pending     []pendingStep // steps with events that are not known to be safe, oldest first
	wakeup      chan struct{} // filled when pending gets an element
	quit        chan struct{} // closed with the keeper
	broken      error         // why the log failed; after that no change becomes visible
}

// pendingStep has the notifications of the steps of one commit.
type pendingStep struct {
	commit  *Commit
	changes uint64 // Counters.Changes after the latest of these steps
	news    *news
}

// NewLogged returns a Keeper of t, which logs its steps. The caller must not use t any more. The
// clock must not be behind the table's time. A goroutine delivers the notifications of steps that
// became safe, until the keeper is closed or the log fails.
func NewLogged(g lockkeeper.Guarantees, clock func() time.Duration, t *table.Table, log Log) *Keeper {
	k := New(g, clock)
	k.table, k.log = t, log
	k.record = logState{
		at:          t.Now(),
		safeChanges: t.Counters().Changes,
		wakeup:      make(chan struct{}, 1),
		quit:        make(chan struct{}),
	}
	k.mu.Lock()
	k.arm()
	k.mu.Unlock()
	go k.deliverCommitted()
	return k
}

// Snapshot calls use with a snapshot of the table. The snapshot contains the effects of all
// appended entries, safe or not. The keeper applies and appends no command during the call.
// Snapshot also works after Close.
func (k *Keeper) Snapshot(use func(table.Snapshot)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	use(k.table.Snapshot())
}

// appendStep appends the current step to the log. It appends a refused command or a list as a Pass,
// and only if the passing of time had effects, the key has LowestOpen or Acked (R12, R16), or the
// log must record the time (R19). The caller holds the mutex.
func (k *Keeper) appendStep(own string, refused error) *Commit {
	events := len(k.table.Events()) > 0
	after := k.table.Counters()
	c := &k.command
	if refused != nil {
		pass := table.Command{Op: table.Pass}
		if c.Op != table.Attach && !errors.Is(refused, lockkeeper.ErrSession) {
			pass.Key = c.Key
		}
		c = &pass
	}
	if c.Op == table.Pass && !events && c.Key.LowestOpen == 0 && c.Key.Acked == 0 && after.Now < k.recordAt() {
		return nil
	}
	c.At, k.record.at = after.Now, after.Now
	commit := k.log.Append(c, after)
	k.record.last = commit
	if events {
		k.stage(own, refused, commit, after.Changes)
	}
	return commit
}

// recordAt returns the instant at which the log must record the time; lockkeeper.Forever if it need
// not. The caller holds the mutex.
func (k *Keeper) recordAt() time.Duration {
	if k.log == nil || !k.table.Resuming() {
		return lockkeeper.Forever
	}
	return k.record.at + recordInterval
}

// stage keeps the notifications of the step until its commit is safe. The caller holds the mutex.
func (k *Keeper) stage(own string, refused error, commit *Commit, changes uint64) {
	r := &k.record
	r.latest = commit
	last := len(r.pending) - 1
	if last < 0 || r.pending[last].commit != commit {
		r.pending = append(r.pending, pendingStep{commit: commit, news: newsRoom.Get().(*news)})
		last++
	}
	r.pending[last].changes = changes
	n := r.pending[last].news
	k.gather(n, &k.command, own, refused == nil, k.command.At)
	if len(n.items) > 0 || len(n.changes) > 0 {
		k.log.StartCommit()
	}
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// closeNews completes the pending notification for the former owner of a session, because later
// changes belong to the new owner. Only the last pending step can still grow. The caller holds the
// mutex.
func (k *Keeper) closeNews(session string) {
	last := len(k.record.pending) - 1
	if last < 0 {
		return
	}
	k.record.pending[last].news.closeItem(session)
}

// showsUnsafe reports whether one of claims shows a change that is not known to be safe. The caller
// holds the mutex.
func (p *publisher) showsUnsafe(claims []lockkeeper.Status) bool {
	if p.log == nil {
		return false
	}
	for i := range claims {
		if claims[i].Change > p.record.safeChanges {
			return true
		}
	}
	return false
}

// safely waits until the commit of a decision is safe. It returns refused, which is the decision if
// the table refused the command, or the error that keeps the decision from being safe.
func (p *publisher) safely(ctx context.Context, commit *Commit, refused error) error {
	if err := p.waitSafe(ctx, commit); err != nil {
		return err
	}
	return refused
}

// waitSafe waits until the commit is safe. A nil commit is safe. If ctx ends before that, the
// outcome is unknown, and the caller may repeat the command (R16).
func (p *publisher) waitSafe(ctx context.Context, commit *Commit) error {
	if commit == nil {
		return nil
	}
	select {
	case <-commit.done:
	default:
		p.log.StartCommit()
		select {
		case <-commit.done:
		case <-ctx.Done():
			err := unavailable(context.Cause(ctx))
			if why := p.log.Admit(true); why != nil {
				err = unavailable(fmt.Errorf("%w: %w", context.Cause(ctx), why))
			}
			return err
		}
	}
	return commit.err
}

// deliverCommitted delivers the notifications of each commit when it is safe, until the keeper is
// closed or the log fails.
func (k *Keeper) deliverCommitted() {
	for {
		commit := k.oldestPending()
		if commit == nil {
			select {
			case <-k.record.wakeup:
				continue
			case <-k.record.quit:
				return
			case <-k.log.Failed():
				k.fail(k.log.Admit(false)) // otherwise watchers would wait without end
				return
			}
		}
		select {
		case <-commit.done:
		case <-k.record.quit:
			return
		}
		if commit.err != nil {
			k.fail(commit.err)
			return
		}
		k.takeOldest().deliver()
	}
}

// oldestPending returns the commit of the oldest pending step; nil if there is none.
func (k *Keeper) oldestPending() *Commit {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.record.pending) == 0 {
		return nil
	}
	return k.record.pending[0].commit
}

// takeOldest removes the oldest pending step, which is safe, publishes its changes, and returns the
// notifications for sessions.
func (k *Keeper) takeOldest() *news {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.record
	first := r.pending[0]
	r.pending[0] = pendingStep{}
	if r.pending = r.pending[1:]; len(r.pending) == 0 {
		r.pending = nil
	}
	r.safeChanges = first.changes
	k.publish(first.news.changes)
	return first.news
}

// fail makes the keeper refuse all calls with err. It ends the watchers, because the keeper must
// not publish a change that is not safe. It notifies every session that it may have missed changes,
// so that each holder asks at once and learns that it can no longer renew its holds.
func (k *Keeper) fail(err error) {
	for _, notify := range k.failed(err) {
		notify(nil)
	}
}

func (k *Keeper) failed(err error) (holders []attached.Notify) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.record.broken, k.record.pending = err, nil
	for w := range k.watchers.All() {
		w.wake()
	}
	return k.sessions.Everybody()
}
