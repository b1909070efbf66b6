package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// errManners is a request that no client of ours sends.
var errManners = errors.New("a request is not as the protocol says")

// take has one request answered: by the reader itself if the engine answers out of
// memory, else beside it. An error means that the connection must end.
func (c *conn) take(m *wire.Request) error {
	switch {
	case m.GetStop() != 0:
		c.stop(m.GetStop())
		return nil
	case m.GetId() == 0:
		return fmt.Errorf("%w: its number is 0", errManners)
	case m.GetList() != nil:
		return c.list(m)
	case c.prompt && !m.GetAbout() && m.GetDrain() == nil:
		c.answer(c.within(context.Background(), m), m)
		return nil
	}
	if err := c.begin(); err != nil {
		return err
	}
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		c.answer(c.within(c.server.life, m), m)
		<-c.atWork
	}()
	return nil
}

// begin waits until the engine may work on one request more. Meanwhile the reader is
// not at work: what is answered, and hints, must not wait for it.
func (c *conn) begin() error {
	select {
	case c.atWork <- struct{}{}:
		return nil
	default:
	}
	c.flush()
	select {
	case c.atWork <- struct{}{}:
		return nil
	case <-c.server.life.Done():
		return c.server.life.Err()
	}
}

// within is the context in which m is worked on: in the trace that it belongs to.
func (c *conn) within(ctx context.Context, m *wire.Request) context.Context {
	if c.server.options.Trace == nil || m.GetTraceparent() == "" {
		return ctx
	}
	return c.server.options.Trace(ctx, m.GetTraceparent())
}

// answer has the engine do what m asks for, and sends what came of it.
func (c *conn) answer(ctx context.Context, m *wire.Request) {
	key := lockkeeper.Key{Session: m.GetSession(), Epoch: m.GetEpoch(), LowestOpen: m.GetAnswered(), Acked: m.GetHeard()}
	switch {
	case m.GetAttach() != nil:
		lease, err := c.attach(ctx, m.GetAttach().Read())
		c.lease(m.GetId(), &lease, err)
	case m.GetRenew():
		lease, err := c.renew(ctx, key)
		c.lease(m.GetId(), &lease, err)
	case m.GetClaim() != nil:
		status, err := c.engine.Claim(ctx, key, m.GetClaim().Read())
		reply := &wire.Reply{Id: m.GetId()}
		if err != nil {
			reply.Error = wire.SendError(err)
		} else {
			reply.Status = wire.SendStatus(&status, key.Session)
		}
		c.reply(reply)
	case m.GetEnd() != nil:
		reply := &wire.Reply{Id: m.GetId()}
		e := m.GetEnd().Read()
		err := c.engine.End(ctx, key, e)
		if err != nil {
			reply.Error = wire.SendError(err)
		} else if e.Kind == lockkeeper.Leave {
			c.server.routes.ended(c.identity, key)
		}
		c.reply(reply)
	case m.GetAbout():
		state := c.server.state(ctx, c)
		c.reply(&wire.Reply{Id: m.GetId(), About: wire.SendServerState(&state)})
	case m.GetDrain() != nil:
		reply := &wire.Reply{Id: m.GetId()}
		state, err := c.server.drainFor(ctx, c, m.GetDrain())
		if err != nil {
			reply.Error = wire.SendError(err)
		} else {
			reply.About = wire.SendServerState(&state)
		}
		c.reply(reply)
	default:
		err := lockkeeper.Invalid("the request asks for nothing that this server knows: use client and server of one version")
		c.reply(&wire.Reply{Id: m.GetId(), Error: wire.SendError(err)})
	}
}

func (c *conn) attach(ctx context.Context, s lockkeeper.Session) (lockkeeper.Lease, error) {
	if err := s.Check(false); err != nil { // without a TTL nothing would ever end it
		return lockkeeper.Lease{}, err
	}
	r := &route{server: c.server}
	r.conn.Store(c)
	lease, err := c.engine.Attach(ctx, s, r.tell)
	if err == nil {
		c.server.routes.attached(owned{c.identity, s.ID}, r, &lease)
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
func (c *conn) lease(id uint64, lease *lockkeeper.Lease, err error) {
	if err != nil {
		c.reply(&wire.Reply{Id: id, Error: wire.SendError(err)})
		return
	}
	for rest := *lease; ; {
		var m *wire.Lease
		m, rest = wire.SendLease(&rest)
		c.reply(&wire.Reply{Id: id, Lease: m, More: len(rest.Claims) > 0})
		if len(rest.Claims) == 0 {
			return
		}
	}
}
