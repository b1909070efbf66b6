package keeper

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/table"
)

// A View shows sessions and watchers a table that its owner steps, such as the table of a node of a
// cluster. It is the mutex of that table: the owner changes the table only between Lock and Unlock,
// and readers lock it too. All that the table has may be shown at once. Unlock delivers the
// notifications of the steps since Lock.
//
// The methods of a View are safe for concurrent use, except that the caller of Applied, Show and
// Interrupt must have locked it.
type View struct {
	publisher
	news        *news             // of the steps since Lock; nil if there are none
	interrupted []attached.Notify // sessions to notify that they may have missed changes
}

var _ sync.Locker = (*View)(nil)

// NewView returns a View of an empty table. clock must be safe for concurrent use, and must not go
// back.
func NewView(clock func() time.Duration) *View { return &View{publisher: newPublisher(clock)} }

// Lock locks the table.
func (v *View) Lock() { v.mu.Lock() }

// Unlock unlocks the table, and notifies sessions of what has changed since Lock.
func (v *View) Unlock() {
	news, interrupted := v.news, v.interrupted
	v.news, v.interrupted = nil, nil
	v.mu.Unlock()
	news.deliver()
	for _, notify := range interrupted {
		notify(nil)
	}
}

// A Step is a command that the owner has given to the table. Table.Events still has its events.
type Step struct {
	Table   *table.Table
	Command *table.Command
	Reply   table.Reply
	Refused error  // with which the table refused the command
	Index   uint64 // of the command in the log of the owner; see lockkeeper.Status.LogIndex

	// Replied: a caller of this process gets the reply, so its session needs no notification of what
	// the reply says.
	Replied bool
	// Notify is of an Attach with Replied: it is attached through this process from now on. It may be
	// nil.
	Notify attached.Notify
}

// Applied publishes a step, and follows which sessions are attached through this process. The caller
// calls it after each step.
func (v *View) Applied(s Step) {
	v.Show(s.Table)
	v.index = s.Index
	c, own := s.Command, ""
	if c.Op == table.End && c.Ending.Kind == lockkeeper.Leave && s.Refused == nil {
		v.sessions.Remove(c.Key.Session, c.Key.Epoch)
		if s.Replied {
			own = c.Key.Session
		}
	}
	if len(v.table.Events()) > 0 && v.sessions.Len()+v.watchers.Len() > 0 {
		if v.news == nil {
			v.news = newsRoom.Get().(*news)
		}
		v.gather(v.news, c, own, s.Replied && s.Refused == nil, v.clock())
	}
	if c.Op == table.Attach && s.Refused == nil {
		v.attached(&s)
	}
}

// attached follows an Attach: from now on notifications go to its caller, if that is of this process,
// and not to the former owner of the session.
func (v *View) attached(s *Step) {
	id, epoch := s.Command.Session.ID, s.Reply.Lease.Key.Epoch
	if v.news != nil {
		v.news.closeItem(id)
	}
	if !s.Replied {
		v.sessions.Remove(id, epoch)
		return
	}
	v.sessions.Put(id, &attached.Attachment[struct{}]{Epoch: epoch, Notify: s.Notify})
	v.sessions.Sweep(func(id string, _ *attached.Attachment[struct{}]) bool { return !v.table.Open(id) })
}

// Show makes t the table. If it replaces another one, as after a snapshot of the leader, nobody was
// notified of the changes between the two: Show interrupts all.
func (v *View) Show(t *table.Table) {
	if t != v.table {
		v.table = t
		v.Interrupt(errReplaced)
	}
}

var errReplaced error = &lockkeeper.Error{
	Err:    lockkeeper.ErrUnavailable,
	Detail: "this node was behind the others and has missed changes: list again",
}

// Interrupt ends all watchers with err, and notifies all sessions that they may have missed changes,
// so that their clients ask at once.
func (v *View) Interrupt(err error) {
	for w := range v.watchers.All() {
		v.watchers.Remove(w)
		w.end(err)
	}
	v.interrupted = append(v.interrupted, v.sessions.Everybody()...)
}

// Close ends all watchers, and notifies no session any more. Lists are refused from then on.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for w := range v.watchers.All() {
		w.wake()
	}
	v.sessions.Clear()
}

// List yields the claims and freezes that q selects from the table as it is, and with q.Follow all
// changes from then on, as Engine.List does. q.Stale has no effect.
func (v *View) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) { v.list(ctx, q, v.look, yield) }
}

// look is a lookFunc.
func (v *View) look(ctx context.Context, q lockkeeper.Query) (*watcher, []*change, *Commit, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, unavailable(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, nil, nil, unavailable(errClosed)
	}
	return v.follow(q), v.present(q), nil, nil
}
