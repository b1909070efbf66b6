package remote

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A Call is one of those that Batch does at once: a claim if Want is set, else an
// ending.
type Call struct {
	Key    lockkeeper.Key
	Want   *lockkeeper.Want
	Ending *lockkeeper.Ending

	Status lockkeeper.Status // the answer to a claim
	Err    error             // as of Engine.Claim or Engine.End
}

// A batch is calls whose caller waits for all of them.
type batch struct {
	left atomic.Int64
	done chan struct{} // closed when none is left
}

// Batch does many calls in one exchange, and is back when all are answered or ctx
// ends; those that were not answered then have an ErrUnavailable. No call waits for
// another, so what one builds on must have been answered before, and each is refused
// or unanswered by itself. It is for programs that act for many: one that sends a
// thousand requests at once pays for few messages.
func (e *Engine) Batch(ctx context.Context, calls []Call) {
	requests := make([]wire.Request, len(calls))
	open := make([]call, len(calls))
	parent := e.traceparent(ctx)
	sent := make([]int, 0, len(calls)) // the calls that nothing was wrong with
	for i := range calls {
		requests[i].Traceparent = parent
		if calls[i].Err = e.request(&calls[i], &requests[i]); calls[i].Err == nil {
			sent = append(sent, i)
		}
	}
	if len(sent) == 0 {
		return
	}
	b := &batch{done: make(chan struct{})}
	b.left.Store(int64(len(sent)))
	err := e.exchange(ctx, b, requests, open, sent)
	for _, i := range sent {
		calls[i].Status, calls[i].Err = open[i].status, open[i].err
		switch {
		case err != nil:
			calls[i].Err = err
		case calls[i].Err == nil && calls[i].Want != nil && calls[i].Status.State == 0:
			calls[i].Err = unavailable(errAnswer)
		}
	}
}

// request makes the message of a call, if nothing is wrong with it.
func (e *Engine) request(c *Call, m *wire.Request) error {
	m.Session, m.Epoch, m.Answered, m.Heard = c.Key.Session, c.Key.Epoch, c.Key.LowestOpen, c.Key.Acked
	switch {
	case c.Want != nil:
		if err := e.guarantees.Refuse(c.Want); err != nil {
			return err
		}
		m.Claim = wire.SendWant(c.Want)
		return c.Want.Check()
	case c.Ending != nil:
		m.End = wire.SendEnding(c.Ending)
		return c.Ending.Check()
	}
	return lockkeeper.Invalid("a call of a batch has neither a want nor an ending")
}

// exchange sends requests and waits for their answers. An error stands for those
// that have none.
func (e *Engine) exchange(ctx context.Context, b *batch, requests []wire.Request, open []call, sent []int) error {
	c, err := e.connection(ctx)
	if err != nil {
		return err
	}
	heard, began := c.heard.Load(), time.Now()
	if err := c.sendAll(ctx, b, requests, open, sent); err != nil {
		return unavailable(err)
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
	}
	forgotten := 0
	for _, i := range sent {
		if c.forget(requests[i].Id) {
			open[i].err = unavailable(ctx.Err())
			open[i].answered()
			forgotten++
		}
	}
	<-b.done // the others were answered at this very moment
	if forgotten > 0 {
		c.suspect(ctx, heard, began)
	}
	return nil
}

// sendAll sends all requests, in their order, with nothing in between.
func (c *conn) sendAll(ctx context.Context, b *batch, requests []wire.Request, open []call, sent []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admit(ctx); err != nil {
		return err
	}
	few := len(c.calls) == 0
	for _, i := range sent {
		c.next++
		requests[i].Id = c.next
		open[i].batch, open[i].session = b, requests[i].Session
		c.calls[c.next] = &open[i]
		c.out.PutRequest(&requests[i])
	}
	if few && !c.writing && c.easy() {
		c.flushOnce()
	}
	c.hurry()
	return nil
}
