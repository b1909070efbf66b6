package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// echoPeer is the limit of servers with one TCP connection per client: an echo of
// frames, and of frames as large as a batch.
type echoPeer struct {
	ownServer
	sizes sizes
}

func (p *echoPeer) about() about {
	return about{
		name: echoName, kinds: []kind{distinct, batches},
		how: "a TCP connection each; a batch is one frame as large as all of it",
	}
}

func (p *echoPeer) start(_ context.Context, at place) error { return p.launch("echo", at) }

func (p *echoPeer) open(ctx context.Context, n int) (clients, error) {
	return dialEach(ctx, p.addr(), n, func(conn net.Conn, _ int) (load.Locker, error) {
		return &echoClient{conn: conn, sizes: p.sizes}, nil
	})
}

type echoClient struct {
	conn  net.Conn
	sizes sizes
	buf   []byte
}

func (c *echoClient) Acquire(context.Context, string) error {
	return c.ask(c.sizes.Claim, c.sizes.Claimed, 0)
}

func (c *echoClient) Release(context.Context, string) error {
	return c.ask(c.sizes.End, c.sizes.Ended, 0)
}

func (c *echoClient) batch(_ context.Context, paths []string) error {
	if err := c.ask(c.sizes.Claim*len(paths), c.sizes.Claimed*len(paths), 0); err != nil {
		return err
	}
	return c.ask(c.sizes.End*len(paths), c.sizes.Ended*len(paths), 0)
}

// ask sends a frame of one length, with a number, and waits for its answer of
// another length.
func (c *echoClient) ask(length, answer int, number uint32) error {
	if err := c.send(length, answer, number); err != nil {
		return err
	}
	_, err := c.receive(answer)
	return err
}

func (c *echoClient) send(length, answer int, number uint32) error {
	if most := max(length, answer); len(c.buf) < most {
		c.buf = make([]byte, most)
	}
	putFrame(c.buf[:length], answer, number)
	_, err := c.conn.Write(c.buf[:length])
	return err
}

// receive reads a frame of this length, after send, and returns its number.
func (c *echoClient) receive(answer int) (number uint32, err error) {
	if _, err := io.ReadFull(c.conn, c.buf[:answer]); err != nil {
		return 0, err
	}
	if got := int(binary.LittleEndian.Uint32(c.buf)); got != answer {
		return 0, fmt.Errorf("asked for an answer of %d bytes, got %d", answer, got)
	}
	return binary.LittleEndian.Uint32(c.buf[8:]), nil
}
