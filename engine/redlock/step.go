package redlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/attached"
)

// call is a call of the engine that waits for its answer.
type call struct {
	answer    chan quorum.Answer // has room for the one answer
	attaching *attaching         // of Attach
}

// attaching is what the engine keeps of a session when its Attach succeeds.
type attaching struct {
	session string
	ttl     time.Duration
	notify  attached.Notify
}

// hint is a notification that is due.
type hint struct {
	notify   attached.Notify
	statuses []lockkeeper.Status
}

// step lets do pass an input to the Party, and does what the Party outputs.
func (e *Engine) step(do func(now time.Duration)) {
	e.mu.Lock()
	do(e.clock())
	hints := e.execute()
	e.mu.Unlock()
	deliver(hints)
}

// deliver calls the notify functions. The caller does not hold mu: two steps may deliver in either
// order, and clients compare Status.Change.
func deliver(hints []hint) {
	for _, h := range hints {
		h.notify(h.statuses)
	}
}

// execute does what the Party outputs, except for the hints, which the caller delivers after it has
// released mu.
func (e *Engine) execute() []hint {
	out := e.party.Output()
	for i := range out.Sends {
		send := &out.Sends[i]
		e.servers[send.Server].put(request{Request: send.Request, number: send.Number})
	}
	for _, a := range out.Answers {
		e.answer(a)
	}
	if report := e.handshaken.Load(); report != nil {
		for _, took := range out.Handshakes {
			(*report)(took)
		}
	}
	var hints []hint
	for _, n := range out.Notices {
		if a := e.sessions.Get(n.Session); a != nil && a.Epoch == n.Epoch && a.Notify != nil {
			hints = append(hints, hint{a.Notify, n.Statuses})
		}
	}
	e.party.Reuse(out)
	e.arm()
	return hints
}

// answer passes an answer to its caller. If that has given up, nobody needs it.
func (e *Engine) answer(a quorum.Answer) {
	c := e.calls[a.Call]
	if c == nil {
		return
	}
	delete(e.calls, a.Call)
	if at := c.attaching; at != nil && a.Err == nil {
		epoch, now := a.Lease.Key.Epoch, time.Now()
		e.sessions.Put(at.session, &attached.Attachment[struct{}]{
			Epoch:  epoch,
			Order:  epoch,
			TTL:    at.ttl,
			Until:  now.Add(a.Lease.TTL),
			Notify: at.notify,
		})
		e.sessions.Sweep(func(_ string, a *attached.Attachment[struct{}]) bool { return a.Until.Before(now) })
	}
	c.answer <- a
}

// call passes a call to the Party and waits for its answer, or for the end of ctx.
func (e *Engine) call(ctx context.Context, attaching *attaching,
	begin func(now time.Duration) quorum.CallID) (quorum.Answer, error) {
	if err := ctx.Err(); err != nil {
		return quorum.Answer{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
	}
	c := &call{answer: make(chan quorum.Answer, 1), attaching: attaching}
	var id quorum.CallID
	closed := false
	e.step(func(now time.Duration) {
		if closed = e.closed; !closed {
			id = begin(now)
			e.calls[id] = c
		}
	})
	if closed {
		return quorum.Answer{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errClosed}
	}
	var a quorum.Answer
	select {
	case a = <-c.answer:
	case <-ctx.Done():
		if !e.abandon(id) {
			a = <-c.answer // it came at the same moment
			break
		}
		return quorum.Answer{}, e.unavailable(ctx.Err())
	case <-e.closing.Done():
		e.abandon(id)
		return quorum.Answer{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errClosed}
	}
	if a.Err == lockkeeper.ErrUnavailable {
		a.Err = e.unavailable(nil)
	}
	e.poller.Wake()
	return a, a.Err
}

// abandon tells the Party that the caller has gone. It returns false if the call was answered.
func (e *Engine) abandon(id quorum.CallID) (waited bool) {
	e.step(func(now time.Duration) {
		if _, waited = e.calls[id]; waited {
			delete(e.calls, id)
			e.party.Abandon(now, id)
		}
	})
	return waited
}

// unavailable returns an ErrUnavailable that says which servers can't be used, and why.
func (e *Engine) unavailable(cause error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var down []string
	for _, s := range e.servers {
		if !s.up {
			down = append(down, s.link.Name()+": "+s.why.Error())
		}
	}
	detail := ""
	if len(down) > 0 {
		detail = fmt.Sprintf("%d of %d servers can't be used: %s", len(down), len(e.servers), strings.Join(down, "; "))
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: detail, Cause: cause}
}

// leastPause is the shortest time between two ticks.
const leastPause = time.Millisecond

// arm sets the timer to the next tick that the Party wants. The caller holds mu.
func (e *Engine) arm() {
	next := e.party.Next()
	if next == 0 || e.closed || e.due != 0 && e.due <= next {
		return // a timer that fires too early sets itself again
	}
	e.due = next
	e.timer.Reset(max(next-e.clock(), leastPause))
}

// tick tells the Party that time has passed.
func (e *Engine) tick() {
	e.step(func(now time.Duration) {
		e.due = 0
		e.party.Tick(now)
	})
}
