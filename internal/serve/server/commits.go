package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A decided answer waits for its commit. Its request counts as running until it is answered.
//
//	reader: Begin… ─┬─ no commit ──> reply
//	                └─ commit ─> queue ─┬─ Done ─────────────────> finish, reply
//	                                    └─ end of Server.life ──> finish: unavailable
//
// An engine returns commits in the order in which they end, and one goroutine for each connection
// answers in that order. So answers whose commits end together share a write, and a client that does
// not read delays only its own connection.
type decided struct {
	answer
	commit    lockkeeper.Commit
	requested lockkeeper.Want // to which the answer refers
	// Runs after the commit has ended, before the reply; may be nil.
	after func(err error)
}

// decisions keeps the memory of answers for reuse.
var decisions = sync.Pool{New: func() any { return new(decided) }}

// newDecided returns the answer of a request, to be filled.
func newDecided(m *request) *decided {
	d := decisions.Get().(*decided)
	d.call = m.Number
	if m.Method == wire.MethodClaim {
		d.requested = m.want
		d.session, d.want = m.key.Session, &d.requested
	}
	return d
}

func (d *decided) free() {
	*d = decided{}
	decisions.Put(d)
}

// mayDecide reports whether the reader may leave the request to a lockkeeper.GroupCommitter.
func (c *conn) mayDecide(m *request) bool {
	return c.group != nil && (m.Method == wire.MethodClaim || m.Method == wire.MethodEnd || m.Method == wire.MethodRenew)
}

// decide lets the engine decide a request, and sends the answer or queues it behind its commit. It
// returns lockkeeper.ErrNotBegun if the engine leaves the request to the plain method. The caller has
// counted the request as running.
func (c *conn) decide(ctx context.Context, m *request) error {
	d := newDecided(m)
	switch m.Method {
	case wire.MethodClaim:
		d.status, d.commit, d.err = c.group.BeginClaim(ctx, m.key, m.want)
	case wire.MethodEnd:
		d.commit, d.err = c.group.BeginEnd(ctx, m.key, m.ending)
		if d.err == nil && m.ending.Kind == lockkeeper.Leave {
			d.after = c.left(m.key)
		}
	case wire.MethodRenew:
		here := c.server.routes.renewing(m.key, c)
		lease, commit, err := c.group.BeginRenew(ctx, m.key)
		d.lease, d.commit, d.err = &lease, commit, err
		switch {
		case err == nil && !here:
			d.err = errElsewhere
		case errors.Is(err, lockkeeper.ErrSession):
			d.after = c.left(m.key)
		}
	}
	switch {
	case d.err == lockkeeper.ErrNotBegun:
		d.free()
		return lockkeeper.ErrNotBegun
	case d.commit != nil:
		c.queue(d)
		return nil
	}
	if d.after != nil {
		d.after(nil)
	}
	c.reply(&d.answer)
	d.free()
	<-c.atWork
	return nil
}

// left returns a function that removes the route of a session that has ended, if the commit of its
// end did not fail.
func (c *conn) left(key lockkeeper.Key) func(error) {
	return func(failed error) {
		if failed == nil {
			c.server.routes.ended(c.identity, key)
		}
	}
}

// A queue has the decided answers of one connection. The reader fills it, and answerDecided empties
// it.
type queue struct {
	mu   sync.Mutex
	all  []*decided
	more chan struct{} // filled when all gets its first element; nil until answerDecided runs
}

// queuedRoom is the number of answers whose memory an idle queue keeps.
const queuedRoom = 128

// queue adds an answer behind all others of the connection. Only the reader calls it.
func (c *conn) queue(d *decided) {
	if c.committing.more == nil {
		c.committing.more = make(chan struct{}, 1)
		c.work.Go(c.answerDecided)
	}
	c.committing.mu.Lock()
	c.committing.all = append(c.committing.all, d)
	first := len(c.committing.all) == 1
	c.committing.mu.Unlock()
	if first {
		select {
		case c.committing.more <- struct{}{}:
		default: // it will look again
		}
	}
}

// endQueue lets answerDecided return once it has answered everything. Only the reader calls it,
// after its last call of queue.
func (c *conn) endQueue() {
	if c.committing.more != nil {
		close(c.committing.more)
	}
}

// answerDecided answers in the order of the queue, until endQueue.
func (c *conn) answerDecided() {
	var all []*decided
	for range c.committing.more {
		for all = c.take(all); len(all) > 0; all = c.take(all) {
			select {
			case <-all[0].commit.Done():
			case <-c.server.life.Done():
			}
			all = c.take(all) // what came meanwhile may have the same commit
			all = slices.Delete(all, 0, c.answerCommitted(all))
		}
		if cap(all) > queuedRoom {
			all = nil
		}
	}
}

// take moves the queue to the end of all.
func (c *conn) take(all []*decided) []*decided {
	q := &c.committing
	q.mu.Lock()
	defer q.mu.Unlock()
	all = append(all, q.all...)
	clear(q.all)
	if q.all = q.all[:0]; cap(q.all) > queuedRoom {
		q.all = nil
	}
	return all
}

// answerCommitted answers the first decision, and those behind it whose commits have ended too, by one
// write. It returns their number.
func (c *conn) answerCommitted(all []*decided) int {
	n := 1
	for n < len(all) && isEnded(all[n].commit) {
		n++
	}
	for i := range all[:n] {
		all[i].finish()
	}
	c.sendDecided(all[:n])
	for _, d := range all[:n] {
		d.free()
		<-c.atWork
	}
	return n
}

func isEnded(commit lockkeeper.Commit) bool {
	select {
	case <-commit.Done():
		return true
	default:
		return false
	}
}

// finish makes the decision the answer, or the error of its commit.
func (d *decided) finish() {
	failed := d.commit.Finish()
	if failed != nil {
		d.err = failed
	}
	if d.after != nil {
		d.after(failed)
	}
}

// sendDecided sends finished answers. Like reply, it waits while the client has too much unread.
func (c *conn) sendDecided(all []*decided) {
	for i := 0; i < len(all); {
		if all[i].isLease() {
			c.reply(&all[i].answer)
			i++
			continue
		}
		if c.Begin(context.Background()) != nil { // it ends with the connection
			return
		}
		for ; i < len(all) && !all[i].isLease() && c.HasRoom(); i++ {
			if c.mayHave(&all[i].answer) {
				c.put(&all[i].answer)
			}
		}
		c.End(true)
	}
}
