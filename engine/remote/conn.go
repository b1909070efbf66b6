package remote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Bounds of one connection.
const (
	writeTime   = 20 * time.Second       // for one write
	silence     = 20 * time.Second       // a server that owes an answer and sends nothing for this long is dead
	maxUnsent   = 4 << 20                // bytes not yet written: beyond it, callers wait
	farAway     = 250 * time.Millisecond // the longest round trip to a working server
	directCalls = 4                      // with so many calls or fewer, callers write themselves, see send
)

// A conn is one connection to a server. The lock of the wire.Conn guards the fields at its end.
type conn struct {
	*wire.Conn
	engine     *Engine
	net        net.Conn
	address    string // as it was dialled
	guarantees lockkeeper.Guarantees
	nodes      lockkeeper.ClusterNodes // as the welcome stated them
	over       chan struct{}           // closed when the last frame is processed
	draining   atomic.Pointer[string]
	suspension atomic.Pointer[suspension] // nil if the server can perform calls

	lead lead // the goroutine that reads

	// Guarded by the lock.
	calls calls
	crowd int // answers of the latest frame that has any: so many callers may call again at once
	ends  endWatches
	names bindings
	timer *time.Timer // calls expire; nil until a call has a deadline
	sweep time.Time   // when it does so next; zero: it does not
}

func newConn(e *Engine, nc net.Conn, in *bufio.Reader, g lockkeeper.Guarantees) *conn {
	c := &conn{engine: e, net: nc, guarantees: g, over: make(chan struct{}),
		calls: calls{slotBits: slotBits, generationBits: generationBits},
		lead:  lead{turn: make(chan struct{}, 1), frames: frames{in: in}, enough: briskCalls},
	}
	c.Conn = wire.NewConn(nc, wire.ConnOptions{
		WriteTime: writeTime,
		Room:      func(unsent int) bool { return unsent <= maxUnsent },
		Failed:    c.failed,
	})
	return c
}

// A request is a call with the argument of its method. It has pointers alone, so that the arguments can
// stay on the stack of the caller: nothing keeps what a request points to.
type request struct {
	*wire.Call
	session *lockkeeper.Session // of MethodAttach
	want    *lockkeeper.Want    // of MethodClaim
	ending  *lockkeeper.Ending  // of MethodEnd
	drain   *wire.Drain         // of MethodDrain
}

// put adds the request to an outbox. It reports false if a server takes none of that size.
func (m *request) put(out *wire.Outbox) bool {
	switch m.Method {
	case wire.MethodAttach:
		return out.PutAttach(m.Call, m.session)
	case wire.MethodClaim:
		return out.PutClaim(m.Call, m.want)
	case wire.MethodEnd:
		return out.PutEnd(m.Call, m.ending)
	case wire.MethodDrain:
		return out.PutDrain(m.Call, m.drain)
	default:
		return out.PutPlain(m.Call)
	}
}

// call sends one request and waits for its answer until ctx ends. The caller frees the call that it
// returns, which has no error.
func (e *Engine) call(ctx context.Context, m *request) (*call, error) {
	m.Traceparent = e.traceparent(ctx)
	c, waited, err := e.connectionAfterWait(ctx)
	if err == nil && waited && roundtrip.EndsInOutage(ctx) {
		err = c.outage()
	}
	if err != nil {
		return nil, err
	}
	cl := e.newCall()
	cl.ctx, cl.session = ctx, m.Key.Session
	switch m.Method {
	case wire.MethodAttach:
		cl.session = m.session.ID
	case wire.MethodClaim:
		cl.want = *m.want // it completes the answer
	}
	ends := endsOf(ctx)
	cl.due = ends.due
	frames, sent := c.Frames(), time.Now()
	reads, err := c.send(ctx, m, cl, &ends, sent)
	if err != nil {
		return nil, err
	}
	if !(reads && c.read(cl, &ends)) && !c.wait(cl, &ends, m.Number) {
		c.suspect(ctx, frames, sent)
		return nil, c.unanswered(ctx.Err())
	}
	err = cl.err
	if err == nil {
		return cl, nil
	}
	if err == errOver {
		c.suspect(ctx, frames, sent)
		err = c.unanswered(cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	cl.free()
	return nil, err
}

// wait waits until a call is answered. It returns false if one of the contexts ends first.
func (c *conn) wait(cl *call, e *ends, number uint64) bool {
	if e.contexts == ([2]context.Context{}) {
		<-cl.done
		return true
	}
	var ended, closed <-chan struct{}
	if e.contexts[0] != nil {
		ended = e.contexts[0].Done()
	}
	if e.contexts[1] != nil {
		closed = e.contexts[1].Done()
	}
	select {
	case <-cl.done:
		return true
	case <-ended:
		if c.outlive(e, cl, number) {
			select {
			case <-cl.done:
				return true
			case <-closed:
			}
		}
	case <-closed:
	}
	if c.forget(number) {
		return false
	}
	<-cl.done // the answer came at this moment
	return true
}

// errOver marks a call that ended before its answer: expire, or the watch of a context, has ended it.
var errOver = errors.New("the call has ended before its answer")

// watch makes expire run when the call is due. The lock is held.
func (c *conn) watch(cl *call) {
	if cl.due.IsZero() || !c.sweep.IsZero() && !cl.due.Before(c.sweep) {
		return
	}
	c.sweep = cl.due
	if wait := time.Until(cl.due); c.timer == nil {
		c.timer = time.AfterFunc(wait, c.expire)
	} else {
		c.timer.Reset(wait)
	}
}

// expire ends the calls that are due. One timer serves all calls of the connection: most are
// answered long before, and their deadlines are about equally far away, so it seldom has to move.
func (c *conn) expire() {
	c.Lock()
	due, next := c.calls.expire(time.Now())
	if c.sweep = next; !next.IsZero() {
		c.timer.Reset(time.Until(next))
	}
	c.endAndUnlock(due, errOver)
}

var errSilent = errors.New("the server is silent")

// suspect ends the connection if the server sent nothing between sent and the deadline of ctx, and
// that time was at least farAway. It compares with the deadline, not with the present time: a
// process that notices the deadline late must not blame the server.
func (c *conn) suspect(ctx context.Context, frames int64, sent time.Time) {
	until, bounded := ctx.Deadline()
	if bounded && errors.Is(ctx.Err(), context.DeadlineExceeded) && c.Frames() == frames && until.Sub(sent) >= farAway {
		c.Fail(errSilent)
	}
}

var errCalls = errors.New("too many calls are open")

// send numbers the request of a call, makes it name its session, and sends it. It waits for room
// until ctx ends. It reports whether the caller is to read.
//
// While few calls are open, the caller itself writes the request, which saves a switch to the writing
// goroutine. But the callers that a frame with many answers has woken call again one after the other:
// their requests go by one write of that goroutine, not the first few by a write each.
func (c *conn) send(ctx context.Context, m *request, cl *call, e *ends, now time.Time) (reads bool, err error) {
	if err := c.Begin(ctx); err != nil {
		return false, unavailable(c.explain(err))
	}
	number, ok := c.calls.add(cl, nil)
	if !ok {
		c.End(false)
		return false, unavailable(errCalls)
	}
	c.watch(cl)
	c.rely(cl, e)
	m.Number = number
	c.names.name(m.Call)
	if !m.put(&c.Out) {
		c.names.unname(m.Call)
		c.calls.remove(number)
		c.End(false)
		return false, lockkeeper.Invalid("the request is larger than a server takes, which is %d bytes", wire.MaxFrame)
	}
	reads = c.begun(m, now)
	c.End(c.calls.open <= directCalls && c.crowd <= directCalls)
	return reads, nil
}

// forget closes a call whose caller has given up. It reports false if the call was answered before.
func (c *conn) forget(id uint64) bool {
	c.Lock()
	defer c.Unlock()
	return c.calls.remove(id)
}

// write is the writing goroutine. It also checks every silence/2 whether the server still
// answers.
func (c *conn) write() {
	check := time.NewTicker(silence / 2)
	defer check.Stop()
	var frames int64
	var owed uint64
	for {
		select {
		case <-c.Wake():
			runtime.Gosched() // goroutines that are about to call can share this write
			c.Flush()
		case <-check.C:
			oldest, now := c.oldest(), c.Frames()
			if oldest > 0 && oldest == owed && now == frames {
				c.Fail(errSilent)
			} else if oldest == 0 && now == frames {
				c.ping()
			}
			frames, owed = now, oldest
			if err := c.leaveSuspended(); err != nil { // another node may be able to perform calls by now
				c.Fail(err)
			}
		case <-c.over:
			return
		}
	}
}

// oldest returns the order of the call that has waited longest; 0 if none waits.
func (c *conn) oldest() uint64 {
	c.Lock()
	defer c.Unlock()
	return c.calls.oldest()
}

// ping asks for an answer if only lists are open: a server has nothing to say about a list without
// changes, so its silence means nothing.
func (c *conn) ping() {
	c.Lock()
	if c.calls.lists > 0 && c.Err() == nil {
		if number, ok := c.calls.add(newCall(), nil); ok {
			c.Out.PutPlain(&wire.Call{Number: number, Method: wire.MethodPing})
		}
	}
	c.End(false)
}

// explain adds the server's address to the error of a connection, and the server's reason if it
// drained.
func (c *conn) explain(err error) error {
	if why := c.draining.Load(); why != nil {
		err = fmt.Errorf("%w (before it ended: %s)", err, *why)
	}
	return fmt.Errorf("connection to %s: %w", c.net.RemoteAddr(), err)
}

// failed ends all open calls and lists of the connection, which has failed.
func (c *conn) failed(cause error) {
	c.Lock()
	open := c.calls
	c.calls = calls{}
	if c.timer != nil {
		c.timer.Stop()
	}
	for k := range c.ends {
		c.unwatch(k)
	}
	c.follow() // for the end of the stream
	c.Unlock()
	err := unavailable(c.explain(cause))
	open.each(func(cl *call, l *list) {
		if cl == nil {
			l.end(err)
			return
		}
		cl.err = err
		cl.done <- struct{}{}
	})
	c.engine.lost(c, cause)
}

// receive processes the frames of the server until the connection ends, except those that callers
// process.
func (c *conn) receive() {
	defer close(c.over)
	var hints []lockkeeper.Status
	for {
		message, err := c.await()
		if err == nil {
			hints, err = c.process(message, hints[:0])
		} else if err == io.EOF {
			err = errors.New("the server ended it")
		}
		if err != nil {
			c.Fail(err)
			return
		}
	}
}

// process delivers the replies of a frame, and then its hints, which it appends to a slice that it
// returns. An error ends the connection.
func (c *conn) process(message []byte, hints []lockkeeper.Status) ([]lockkeeper.Status, error) {
	var missed bool
	var draining string
	var refused error
	var stated lockkeeper.ClusterNodes
	e := wire.NewElements(message)
	for e.Next() {
		var err error
		switch e.Field() {
		case wire.FieldReplies:
			err = c.arrived(e.Message())
		case wire.FieldChanged:
			var known bool
			hints, known, err = c.hint(e.Message(), hints)
			missed = missed || !known
		case wire.FieldMissed:
			missed = e.Flag() || missed
		case wire.FieldDraining:
			draining = e.Text()
		case wire.FieldRefused:
			refused, err = wire.ParseError(e.Message())
		case wire.FieldHandshake:
			err = fmt.Errorf("%w: a second welcome", wire.ErrFrame)
		case wire.FieldCluster:
			stated, err = wire.ParseCluster(e.Message())
		}
		if err != nil {
			return hints, c.deliverArrived(err)
		}
	}
	if err := c.deliverArrived(e.Err()); err != nil {
		return hints, err
	}
	if len(hints) > 0 {
		c.Lock()
		for i := range hints {
			c.note(&hints[i])
		}
		c.Unlock()
	}
	c.engine.deliverHints(hints)
	if missed {
		c.engine.missed()
	}
	if stated.ID != "" {
		if err := c.engine.stated(c, &stated); err != nil {
			return hints, err
		}
	}
	if draining != "" {
		c.draining.Store(&draining)
		if c.engine.leaves(c) {
			return hints, errDrains
		}
	}
	return hints, refused
}

// hint appends a hint. It reports false if it dropped it, because its handle was bound to another
// session meanwhile.
func (c *conn) hint(message []byte, to []lockkeeper.Status) (hints []lockkeeper.Status, known bool, err error) {
	handle, err := wire.HintHandle(message)
	if err != nil {
		return to, false, err
	}
	session := ""
	if handle != 0 {
		c.Lock()
		session, known = c.names.session(handle)
		c.Unlock()
		if !known {
			return to, false, nil
		}
	}
	to = append(to, lockkeeper.Status{})
	return to, true, wire.ParseHint(message, session, &to[len(to)-1])
}
