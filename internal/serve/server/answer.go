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

// A request is a call with the argument of its method.
type request struct {
	wire.Call
	key     lockkeeper.Key // under which it acts
	want    lockkeeper.Want
	ending  lockkeeper.Ending
	session *lockkeeper.Session
	query   *wire.Query
	drain   *wire.Drain
}

// read reads an encoded request. m is zero before, and keeps no reference to the bytes that it uses.
func (m *request) read(encoded []byte) error {
	if err := wire.ParseCall(encoded, &m.Call); err != nil {
		return err
	}
	var err error
	switch m.Method {
	case wire.MethodAttach:
		m.session = new(lockkeeper.Session)
		*m.session, err = m.Session()
	case wire.MethodClaim:
		err = m.Want(&m.want)
	case wire.MethodEnd:
		m.ending, err = m.Ending()
	case wire.MethodList:
		m.query, err = m.Query()
	case wire.MethodDrain:
		m.drain, err = m.Drain()
	}
	return err
}

// clear makes m zero. It leaves alone what read did not use.
func (m *request) clear() {
	switch m.Method {
	case wire.MethodClaim:
		m.want = lockkeeper.Want{}
	case wire.MethodEnd:
		m.ending = lockkeeper.Ending{}
	}
	m.Call, m.key, m.session, m.query, m.drain = wire.Call{}, lockkeeper.Key{}, nil, nil, nil
}

// handle begins to answer a request. The reader itself calls a prompt engine, or one that commits in
// groups or answers later; another goroutine makes all other calls. After an error the connection must end.
func (c *conn) handle(encoded []byte) error {
	m := &c.request
	defer m.clear() // an idle connection keeps nothing of its last request
	if err := m.read(encoded); err != nil {
		return err
	}
	if m.Number == 0 {
		return fmt.Errorf("%w: its number is 0", errProtocol)
	}
	var err error
	m.key, err = c.bindings.resolve(&m.Call)
	switch {
	case err != nil:
		return err
	case m.Method == wire.MethodList:
		return c.list(m.Number, m.query)
	case c.prompt && m.Method != wire.MethodAbout && m.Method != wire.MethodDrain:
		c.answer(c.within(context.Background(), m), m)
		return nil
	}
	if err := c.countRunning(); err != nil {
		return err
	}
	ctx := c.within(c.server.life, m)
	if c.mayDecide(m) && c.decide(ctx, m) != lockkeeper.ErrNotBegun {
		return nil
	}
	if c.answerLater(ctx, m) {
		return nil
	}
	own := *m
	c.work.Go(func() {
		c.answer(ctx, &own)
		<-c.atWork
	})
	return nil
}

// countRunning waits until fewer than maxAtWork requests are running, and counts one more. Before it
// waits, it uncorks: answers and hints must not wait for the reader.
func (c *conn) countRunning() error {
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
func (c *conn) within(ctx context.Context, m *request) context.Context {
	if c.server.options.Trace == nil || m.Traceparent == "" {
		return ctx
	}
	return c.server.options.Trace(ctx, m.Traceparent)
}

// answer calls the engine, or the server, and sends the result.
func (c *conn) answer(ctx context.Context, m *request) {
	a := answer{call: m.Number}
	switch m.Method {
	case wire.MethodAttach:
		lease, err := c.attach(ctx, *m.session)
		a.lease, a.err = &lease, err
	case wire.MethodRenew:
		lease, err := c.renew(ctx, m.key)
		a.lease, a.err = &lease, err
	case wire.MethodClaim:
		a.session, a.want = m.key.Session, &m.want
		a.status, a.err = c.engine.Claim(ctx, m.key, m.want)
	case wire.MethodEnd:
		if a.err = c.engine.End(ctx, m.key, m.ending); a.err == nil && m.ending.Kind == lockkeeper.Leave {
			c.server.routes.ended(c.identity, m.key)
		}
	case wire.MethodAbout:
		state := c.server.state(ctx, c)
		a.about = &state
	case wire.MethodDrain:
		state, err := c.server.drainFor(ctx, c, m.drain)
		a.about, a.err = &state, err
	case wire.MethodPing:
	default:
		a.err = lockkeeper.Invalid("the request calls no method that this server knows: use client and server of one version")
	}
	c.reply(&a)
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
