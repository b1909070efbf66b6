package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// errProtocol reports a request that breaks the protocol.
var errProtocol = errors.New("a request breaks the protocol")

// start begins to answer a request. The reader itself calls a prompt engine; another goroutine calls
// other engines. After an error the connection must end.
func (c *conn) start(m *wire.Request) error {
	if m.GetCall() == 0 {
		return fmt.Errorf("%w: its number is 0", errProtocol)
	}
	key, err := c.bindings.resolve(m)
	switch {
	case err != nil:
		return err
	case m.GetList() != nil:
		return c.list(m)
	case c.prompt && !m.GetAbout() && m.GetDrain() == nil:
		c.answer(c.within(context.Background(), m), m, key)
		return nil
	}
	if err := c.begin(); err != nil {
		return err
	}
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		c.answer(c.within(c.server.life, m), m, key)
		<-c.atWork
	}()
	return nil
}

// begin waits until fewer than maxAtWork requests are running, and counts one more. Before it
// waits, it uncorks: answers and hints must not wait for the reader.
func (c *conn) begin() error {
	select {
	case c.atWork <- struct{}{}:
		return nil
	default:
	}
	c.Uncork()
	select {
	case c.atWork <- struct{}{}:
		return nil
	case <-c.server.life.Done():
		return c.server.life.Err()
	}
}

// within returns ctx within the trace that m belongs to.
func (c *conn) within(ctx context.Context, m *wire.Request) context.Context {
	if c.server.options.Trace == nil || m.GetTraceparent() == "" {
		return ctx
	}
	return c.server.options.Trace(ctx, m.GetTraceparent())
}

// answer calls the engine, or the server, under the key and sends the result.
func (c *conn) answer(ctx context.Context, m *wire.Request, key lockkeeper.Key) {
	reply := &wire.Reply{Call: m.GetCall()}
	var err error
	switch {
	case m.GetAttach() != nil:
		lease, err := c.attach(ctx, m.GetAttach().Read())
		c.lease(m.GetCall(), &lease, err)
		return
	case m.GetRenew():
		lease, err := c.renew(ctx, key)
		c.lease(m.GetCall(), &lease, err)
		return
	case m.GetClaim() != nil:
		want := m.GetClaim().Read()
		var status lockkeeper.Status
		if status, err = c.engine.Claim(ctx, key, want); err == nil {
			reply.Status = wire.NewAnswer(&status, key.Session, &want)
		}
	case m.GetEnd() != nil:
		ending := m.GetEnd().Read()
		if err = c.engine.End(ctx, key, ending); err == nil && ending.Kind == lockkeeper.Leave {
			c.server.routes.ended(c.identity, key)
		}
	case m.GetAbout():
		state := c.server.state(ctx, c)
		reply.About = wire.NewAbout(&state)
	case m.GetDrain() != nil:
		var state lockkeeper.ServerState
		if state, err = c.server.drainFor(ctx, c, m.GetDrain()); err == nil {
			reply.About = wire.NewAbout(&state)
		}
	case m.GetPing():
	default:
		err = lockkeeper.Invalid("the request calls no method that this server knows: use client and server of one version")
	}
	if err != nil {
		reply.Error = wire.NewError(err)
	}
	c.reply(reply)
}

func (c *conn) attach(ctx context.Context, s lockkeeper.Session) (lockkeeper.Lease, error) {
	if err := s.Check(false); err != nil { // without a TTL nothing would ever end it
		return lockkeeper.Lease{}, err
	}
	r := &route{server: c.server}
	r.conn.Store(c)
	lease, err := c.engine.Attach(ctx, s, r.notify)
	if err == nil {
		c.server.routes.attached(owned(c.identity, s.ID), r, &lease)
	}
	return lease, err
}

func (c *conn) renew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, error) {
	here := c.server.routes.renewing(key, c)
	lease, err := c.engine.Renew(ctx, key)
	switch {
	case err == nil && !here:
		return lockkeeper.Lease{}, errElsewhere
	case errors.Is(err, lockkeeper.ErrSession):
		c.server.routes.ended(c.identity, key)
	}
	return lease, err
}

// lease sends a lease, in pieces if it has many claims.
func (c *conn) lease(call uint64, lease *lockkeeper.Lease, err error) {
	if err != nil {
		c.reply(&wire.Reply{Call: call, Error: wire.NewError(err)})
		return
	}
	for rest := *lease; ; {
		var m *wire.Lease
		m, rest = wire.NewLease(&rest)
		c.reply(&wire.Reply{Call: call, Lease: m, More: len(rest.Claims) > 0})
		if len(rest.Claims) == 0 {
			return
		}
	}
}
