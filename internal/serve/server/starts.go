package server

import (
	"context"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// The answer of a lockkeeper.Starter comes at any time, from a goroutine of the engine. Its request counts
// as running until it is answered.
//
//	reader: Start… ── the engine calls put ─> answers ── answerStarted ─> reply
//
// answerStarted is one goroutine for each connection. So answers that come together share a write, and a
// client that does not read delays only its own connection. When Server.life ends, nobody waits for
// answers any more.
type answers struct {
	mu      sync.Mutex
	all     []*decided    // that have come and were not sent
	missing int           // requests whose answers have not come
	ended   bool          // no further request is started
	more    chan struct{} // filled when all gets its first element, and by end; nil until answerStarted runs
}

// answerLater lets the engine answer a request later. It reports false if the engine leaves the request to the
// plain method. The caller has counted the request as running.
func (c *conn) answerLater(ctx context.Context, m *request) bool {
	if c.starter == nil || m.Method != wire.MethodClaim && m.Method != wire.MethodEnd {
		return false
	}
	q := &c.started
	if q.more == nil {
		q.more = make(chan struct{}, 1)
		c.work.Go(c.answerStarted)
	}
	q.mu.Lock()
	q.missing++
	q.mu.Unlock()
	d := newDecided(m)
	var started bool
	if m.Method == wire.MethodClaim {
		started = c.starter.StartClaim(ctx, m.key, m.want, func(st lockkeeper.Status, err error) {
			d.status, d.err = st, err
			q.put(d)
		})
	} else {
		if m.ending.Kind == lockkeeper.Leave {
			d.after = c.left(m.key)
		}
		started = c.starter.StartEnd(ctx, m.key, m.ending, func(err error) {
			d.err = err
			q.put(d)
		})
	}
	if !started {
		d.free()
		q.mu.Lock()
		q.missing--
		q.mu.Unlock()
	}
	return started
}

// put adds an answer that has come.
func (q *answers) put(d *decided) {
	q.mu.Lock()
	q.all = append(q.all, d)
	q.missing--
	first := len(q.all) == 1
	q.mu.Unlock()
	if first {
		q.wake()
	}
}

// wake lets answerStarted look again.
func (q *answers) wake() {
	select {
	case q.more <- struct{}{}:
	default: // it will
	}
}

// end lets answerStarted return once it has answered everything. Only the reader calls it, after its last
// call of answerLater.
func (q *answers) end() {
	if q.more == nil {
		return
	}
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}

// take returns what has come, and whether nothing comes any more. spare is memory for what comes next.
func (q *answers) take(spare []*decided) (all []*decided, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.all = q.all, spare
	return all, q.ended && q.missing == 0
}

// answerStarted answers what comes, until end or the end of Server.life.
func (c *conn) answerStarted() {
	var spare []*decided
	for last := false; !last; {
		select {
		case <-c.started.more:
		case <-c.server.life.Done():
			return
		}
		var all []*decided
		all, last = c.started.take(spare)
		for _, d := range all {
			if d.after != nil {
				d.after(d.err)
			}
		}
		c.sendDecided(all)
		for _, d := range all {
			d.free()
			<-c.atWork
		}
		clear(all)
		if spare = all[:0]; cap(spare) > queuedRoom {
			spare = nil
		}
	}
}
