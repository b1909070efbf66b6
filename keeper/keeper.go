// Package keeper runs a table: it gives it the time, serialises commands, lets
// time pass when something falls due, and tells sessions and followers what
// became of their claims.
//
// A Keeper is a lockkeeper.Engine. It has no goroutine of its own: callers apply
// their commands under one mutex, a single timer lets time pass, and whoever
// made something happen delivers the news after it has let go of the mutex.
package keeper

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Keeper keeps one table in this process. It is safe for concurrent use.
type Keeper struct {
	guarantees lockkeeper.Guarantees
	clock      func() time.Duration // the engine's time; never goes back

	mu        sync.Mutex // guards all below; never held while a notify runs
	table     *table.Table
	command   table.Command // the one at hand; fields that its Op does not look at are left over
	notify    map[string]func([]lockkeeper.Status)
	followers map[*follower]struct{}
	timer     *time.Timer
	alarm     time.Duration // when timer fires; lockkeeper.Forever if it doesn't
	closed    bool
}

// New returns a Keeper of an empty table. clock is the engine's time: it must be
// monotonic, safe for concurrent use, and 0 or more.
func New(g lockkeeper.Guarantees, clock func() time.Duration) *Keeper {
	k := &Keeper{
		guarantees: g, clock: clock, table: table.New(), alarm: lockkeeper.Forever,
		notify: make(map[string]func([]lockkeeper.Status)), followers: make(map[*follower]struct{}),
	}
	return k
}

// Guarantees implements lockkeeper.Engine.
func (k *Keeper) Guarantees() lockkeeper.Guarantees { return k.guarantees }

// Attach implements lockkeeper.Engine.
func (k *Keeper) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	if err := s.Check(k.guarantees.NoExpiry); err != nil {
		return lockkeeper.Lease{}, err
	}
	if err := k.lock(ctx); err != nil {
		return lockkeeper.Lease{}, err
	}
	k.command.Op, k.command.Session = table.Attach, s
	reply, err := k.table.Step(&k.command)
	news := k.collect("") // whoever had the session before is told what it lost
	if err == nil {
		k.notify[s.ID] = notify
	}
	k.arm()
	k.mu.Unlock()
	news.deliver()
	return reply.Lease, err
}

// Renew implements lockkeeper.Engine.
func (k *Keeper) Renew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, error) {
	if err := k.lock(ctx); err != nil {
		return lockkeeper.Lease{}, err
	}
	k.command.Op, k.command.Key = table.Renew, key
	reply, err := k.table.Step(&k.command)
	k.unlock("")
	return reply.Lease, err
}

// Claim implements lockkeeper.Engine.
func (k *Keeper) Claim(ctx context.Context, key lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := k.guarantees.Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := k.lock(ctx); err != nil {
		return lockkeeper.Status{}, err
	}
	k.command.Op, k.command.Key, k.command.Want = table.Claim, key, w
	reply, err := k.table.Step(&k.command)
	k.unlock("")
	return reply.Status, err
}

// End implements lockkeeper.Engine.
func (k *Keeper) End(ctx context.Context, key lockkeeper.Key, e lockkeeper.Ending) error {
	if err := k.lock(ctx); err != nil {
		return err
	}
	k.command.Op, k.command.Key, k.command.Ending = table.End, key, e
	_, err := k.table.Step(&k.command)
	left := ""
	if e.Kind == lockkeeper.Leave && err == nil {
		left = key.Session
		delete(k.notify, left)
	}
	k.unlock(left)
	return err
}

// Close implements lockkeeper.Engine: the table and all in it is gone.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	for f := range k.followers {
		f.ring()
	}
	clear(k.notify)
	return nil
}

var errClosed = errors.New("the engine is closed")

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// lock takes the mutex for one command, and gives it the time. After an error
// the mutex is not held.
func (k *Keeper) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return unavailable(errClosed)
	}
	k.command.At = k.clock()
	return nil
}

// unlock ends what lock began, and tells everybody concerned what the command
// did. Its caller knows from the reply what became of its own claim, and of all
// of its session if that is named as own.
func (k *Keeper) unlock(own string) {
	news := k.collect(own)
	k.arm()
	k.mu.Unlock()
	news.deliver()
}

// pass lets time pass because something fell due.
func (k *Keeper) pass() {
	if k.lock(context.Background()) != nil {
		return // closed meanwhile
	}
	k.alarm = lockkeeper.Forever
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	// A Pass is never refused.
	_, _ = k.table.Step(&k.command)
	k.unlock("")
}

// arm sets the timer to the next moment at which something falls due. A timer
// that would fire too early is left alone: it then finds nothing and is set anew.
func (k *Keeper) arm() {
	at, any := k.table.Next()
	if !any || at >= k.alarm {
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

// List implements lockkeeper.Engine.
func (k *Keeper) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		f, now, err := k.look(ctx, q)
		if err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		for _, st := range now {
			if !yield(st, nil) {
				k.unfollow(f)
				return
			}
		}
		if f != nil {
			k.follow(ctx, f, yield)
		}
	}
}

// look lists what q selects, and begins to follow it if q says so, in one step:
// nothing falls between the list and what follows.
func (k *Keeper) look(ctx context.Context, q lockkeeper.Query) (*follower, []lockkeeper.Status, error) {
	if err := k.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer k.unlock("")
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	// A Pass is never refused.
	_, _ = k.table.Step(&k.command)
	var now []lockkeeper.Status
	for st := range k.table.List(q) {
		now = append(now, st)
	}
	if !q.Follow {
		return nil, now, nil
	}
	f := &follower{query: q, bell: make(chan struct{}, 1), latest: make(map[subject]lockkeeper.Status)}
	k.followers[f] = struct{}{}
	return f, now, nil
}
