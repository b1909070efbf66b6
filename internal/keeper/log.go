package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Log is what lets the claims of a keeper outlive it: applying its entries, in
// their order, to the table that the keeper began with makes the keeper's table
// again, since time and all else that counts comes with the command.
//
// The keeper applies a command and appends it in one step, so the order of entries
// is that in which things happened. What follows from an entry is told only when
// the log has it safe: the answers to Attach and Claim, to what operators do, news
// to sessions and watchers, and what a list or a renewal shows. Renewals, releases
// and departures are answered before: if those are lost, a session has more than it
// wanted for at most its TTL, which harms nobody.
type Log interface {
	// Admit says whether commands can be taken at all: nil, or an ErrUnavailable
	// that says why not. relies is set for those whose answer waits for the log, so
	// that they are refused at the door while nothing can be made safe. It is safe
	// for concurrent use, and must not wait.
	Admit(relies bool) error

	// Stuck returns a channel that is closed while Admit refuses what relies on the log:
	// entries may take long to become safe. It returns another channel when that is over.
	Stuck() <-chan struct{}

	// Safe returns the table of all safe entries while the log is stuck. That table no longer
	// changes, but callers must not use it concurrently. If the log is not stuck, or ctx ends
	// first, Safe returns an ErrUnavailable.
	Safe(ctx context.Context) (*table.Table, error)

	// Append makes c the next entry; after are the table's counters then. It is
	// called by one goroutine at a time. It must not wait for a disk or a network,
	// and must not keep c, nor anything that c refers to. The commit that it returns
	// ends when the entry and all before it are safe, or never will be.
	Append(c *table.Command, after table.Counters) *Commit

	// Failed is closed when nothing more can be made safe, ever, also if nobody waits
	// for a commit just then: from then on Admit says why, whatever it is asked.
	Failed() <-chan struct{}
}

// A Commit is what a log makes safe at once: one entry or many. It is safe for
// concurrent use.
type Commit struct {
	done chan struct{}
	err  error
}

// NewCommit returns a commit that has not ended.
func NewCommit() *Commit { return &Commit{done: make(chan struct{})} }

// End ends the commit, once: with nil if all of it and all before it is safe. An
// error means that it may be lost, and then all that comes after must end with an
// error too.
func (c *Commit) End(err error) {
	c.err = err
	close(c.done)
}

// Done is closed when the commit has ended.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Err is the error with which the commit ended. It must not be called before Done.
func (c *Commit) Err() error { return c.err }

// recordTime is the longest interval at which the log records the engine's time while a session
// with a TTL has to resume (R19). Time that is not recorded when the engine dies has not passed:
// if the engine dies every 2 s, a session with a TTL of 30 s lives up to 15 recordTimes longer.
const recordTime = 100 * time.Millisecond

// record is what a keeper knows of its log. It is guarded by Keeper.mu, but for
// the channels.
type record struct {
	last   *Commit       // of the latest entry; nil if there was none
	at     time.Duration // the time of the latest entry
	latest *Commit       // of the latest step that made something happen; nil if there was none
	told   uint64        // the changes up to this one are safe
	steps  []step        // those that made something happen, and are not known to be safe; oldest first
	bell   chan struct{} // rung when there is a new one
	quit   chan struct{} // closed when the keeper is
	broken error         // a commit failed: nothing is told any more
}

// step is what the steps of one commit have to tell.
type step struct {
	commit  *Commit
	changes uint64 // the table's counter after it
	news    *news
}

// NewLogged returns a Keeper of t, which belongs to it from then on, and whose steps
// go to log. The clock must not be behind the table's time. A goroutine tells
// what became safe, until the keeper is closed.
func NewLogged(g lockkeeper.Guarantees, clock func() time.Duration, t *table.Table, log Log) *Keeper {
	k := New(g, clock)
	k.table, k.log = t, log
	k.record = record{at: t.Now(), told: t.Counters().Changes, bell: make(chan struct{}, 1), quit: make(chan struct{})}
	k.mu.Lock()
	k.arm()
	k.mu.Unlock()
	go k.tell()
	return k
}

// Snapshot calls with with a snapshot of the table, while nothing happens in it
// and nothing is appended to the log. It works after Close too.
func (k *Keeper) Snapshot(with func(table.Snapshot)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	with(k.table.Snapshot())
}

// enter appends to the log what the step at hand did. What was refused, and a look
// at the table, did nothing but let time pass: that is an entry only if something
// came of it, if the key of what was refused stated something (R12, R16), or if the time
// has to be recorded (R19). The mutex is held.
func (k *Keeper) enter(own string, refused error) *Commit {
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
		k.stage(own, commit, after.Changes)
	}
	return commit
}

// recordAt returns when the log must record the time; lockkeeper.Forever if it need not. The
// caller holds the mutex.
func (k *Keeper) recordAt() time.Duration {
	if k.log == nil || !k.table.Resuming() {
		return lockkeeper.Forever
	}
	return k.record.at + recordTime
}

// stage keeps what the step has to tell until its commit is safe. The mutex is held.
func (k *Keeper) stage(own string, commit *Commit, changes uint64) {
	r := &k.record
	r.latest = commit
	last := len(r.steps) - 1
	if last < 0 || r.steps[last].commit != commit {
		r.steps = append(r.steps, step{commit: commit, news: newsRoom.Get().(*news)})
		last++
	}
	r.steps[last].changes = changes
	k.gather(r.steps[last].news, own)
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// closeNews keeps what is gathered for a session, which was taken over, for whoever
// had it until now: what comes is for somebody else. Only to the last step is
// anything added. The mutex is held.
func (k *Keeper) closeNews(session string) {
	last := len(k.record.steps) - 1
	if last < 0 {
		return
	}
	k.record.steps[last].news.closeItem(session)
}

// tellsUnsafe reports whether one of claims tells of a change that is not known to
// be safe. The mutex is held.
func (k *Keeper) tellsUnsafe(claims []lockkeeper.Status) bool {
	if k.log == nil {
		return false
	}
	for i := range claims {
		if claims[i].Change > k.record.told {
			return true
		}
	}
	return false
}

// safe waits until the commit is safe; nil is. If ctx ends before, what was done
// may have happened or not: R16 makes it right to ask again.
func (k *Keeper) safe(ctx context.Context, commit *Commit) error {
	if commit == nil {
		return nil
	}
	select {
	case <-commit.done:
	default:
		select {
		case <-commit.done:
		case <-ctx.Done():
			err := unavailable(context.Cause(ctx))
			if why := k.log.Admit(true); why != nil {
				err = unavailable(fmt.Errorf("%w: %w", context.Cause(ctx), why))
			}
			return err
		}
	}
	return commit.err
}

// tell delivers the news of each commit when it is safe, until the keeper is closed
// or the log fails.
func (k *Keeper) tell() {
	for {
		commit := k.untold()
		if commit == nil {
			select {
			case <-k.record.bell:
				continue
			case <-k.record.quit:
				return
			case <-k.log.Failed():
				k.fail(k.log.Admit(false)) // watchers would wait without end
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
		k.release().deliver()
	}
}

// untold is the commit of the oldest step that was not told; nil if there is none.
func (k *Keeper) untold() *Commit {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.record.steps) == 0 {
		return nil
	}
	return k.record.steps[0].commit
}

// release takes the oldest step, which is safe, publishes its changes, and returns the
// notifications for sessions.
func (k *Keeper) release() *news {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.record
	first := r.steps[0]
	r.steps[0] = step{}
	if r.steps = r.steps[1:]; len(r.steps) == 0 {
		r.steps = nil
	}
	r.told = first.changes
	k.publish(first.news.changes)
	return first.news
}

// fail ends all watchers, because no change that is not safe may be published.
func (k *Keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.record.broken, k.record.steps = err, nil
	for w := range k.watchers.All() {
		w.wake()
	}
}
