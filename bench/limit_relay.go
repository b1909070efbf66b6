package main

import (
	"context"
	"fmt"
	"net"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// relayPeer is the limit of fair servers on one contended path: a client asks for a token, is told
// that it waits, gets the token, gives it back, and is told that it is back.
type relayPeer struct {
	ownServer
	sizes  sizes
	tokens uint32
}

func (p *relayPeer) about() about {
	return about{
		name: relayName, kinds: []kind{contended, handoff},
		how: "a TCP connection each; the server tells a client that it must wait, and hands one token on in the order of " +
			"asking",
	}
}

func (p *relayPeer) start(_ context.Context, at place) error { return p.launch("relay", at) }

func (p *relayPeer) open(ctx context.Context, n int) (clients, error) {
	p.tokens++
	return dialEach(ctx, p.addr(), n, func(conn net.Conn, _ int) (load.Locker, error) {
		return &relayClient{echoClient: echoClient{conn: conn, sizes: p.sizes}, token: p.tokens}, nil
	})
}

type relayClient struct {
	echoClient
	token   uint32
	bounded bool
}

func (c *relayClient) Acquire(ctx context.Context, _ string) error {
	if !c.bounded {
		c.bounded = true
		context.AfterFunc(ctx, func() { c.conn.Close() })
	}
	if err := c.send(c.sizes.Claim, c.sizes.Claimed, c.token); err != nil {
		return err
	}
	number, err := c.receive(c.sizes.Claimed)
	if err == nil && number == c.token|mustWait {
		number, err = c.receive(c.sizes.Claimed)
	}
	if err == nil && number != c.token {
		err = fmt.Errorf("asked for token %d, the relay answers %#x", c.token, number)
	}
	return err
}

func (c *relayClient) Release(context.Context, string) error {
	return c.ask(c.sizes.End, c.sizes.Ended, c.token|giveBack)
}
