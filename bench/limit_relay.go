package main

import (
	"context"
	"net"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// relayPeer is the limit of fair servers on one contended path: a token that one
// after the other asks for, gets, gives back, and knows to be back.
type relayPeer struct {
	ownServer
	sizes  sizes
	tokens uint32
}

func (p *relayPeer) about() about {
	return about{
		name: relayName, kinds: []kind{contended, handoff},
		how: "a TCP connection each; the server hands one token on, in the order in which it was asked for",
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
	return c.ask(c.sizes.Claim, c.sizes.Claimed, c.token)
}

func (c *relayClient) Release(context.Context, string) error {
	return c.ask(c.sizes.End, c.sizes.Ended, c.token|giveBack)
}
