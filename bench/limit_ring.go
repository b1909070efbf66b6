package main

import (
	"context"
	"encoding/binary"
	"net"
)

// ringPeer is what the wire alone costs on one contended path: a token that goes
// round among those who all want it always, so that nobody needs to ask.
type ringPeer struct {
	ownServer
	rings uint32
}

func (p *ringPeer) about() about {
	return about{
		name: "limit: token ring", kinds: []kind{contended, handoff},
		how: "a TCP connection each; the server hands a token of one byte round, and nobody asks for it",
	}
}

func (p *ringPeer) start(_ context.Context, at place) error { return p.launch("ring", at) }

func (p *ringPeer) open(ctx context.Context, n int) (clients, error) {
	p.rings++
	return dialEach(ctx, p.addr(), n, func(conn net.Conn, _ int) (locker, error) {
		var hello [ringHello]byte
		binary.LittleEndian.PutUint32(hello[:], p.rings)
		binary.LittleEndian.PutUint32(hello[4:], uint32(n))
		_, err := conn.Write(hello[:])
		return &ringClient{conn: conn}, err
	})
}

type ringClient struct {
	conn    net.Conn
	token   [1]byte
	bounded bool
}

func (c *ringClient) acquire(ctx context.Context, _ string) error {
	if !c.bounded {
		c.bounded = true
		context.AfterFunc(ctx, func() { c.conn.Close() })
	}
	_, err := c.conn.Read(c.token[:])
	return err
}

func (c *ringClient) release(context.Context, string) error {
	_, err := c.conn.Write(c.token[:])
	return err
}
