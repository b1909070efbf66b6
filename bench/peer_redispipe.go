package main

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// redisPipePeer is Redis at its fastest: commands written by hand into one
// pipeline per batch, on a connection of each worker's own.
type redisPipePeer struct{ redisServer }

func (p *redisPipePeer) about() about {
	return about{
		name: pipesName, kinds: []kind{distinct, batches}, lacks: redisMissing,
		how: "SET NX PX and EVALSHA written by hand, a connection each; a batch is one pipeline",
	}
}

func (p *redisPipePeer) open(ctx context.Context, n int) (clients, error) {
	sum := sha1.Sum([]byte(deleteIfMine))
	sha := hex.EncodeToString(sum[:])
	return dialEach(ctx, p.process.addr, n, func(conn net.Conn, i int) (load.Locker, error) {
		loaded, err := redisCall(conn, "SCRIPT", "LOAD", deleteIfMine)
		if err == nil && loaded != sha {
			err = fmt.Errorf("redis loads the script as %s, not %s", loaded, sha)
		}
		return &redisPipe{conn: conn, in: bufio.NewReader(conn), sha: sha, owner: fmt.Sprintf("owner-%08d", i)}, err
	})
}

type redisPipe struct {
	conn       net.Conn
	in         *bufio.Reader
	sha, owner string
	out        []byte
	one        [1]string
}

func (c *redisPipe) Acquire(_ context.Context, path string) error {
	c.one[0] = path
	return c.claim(c.one[:])
}

func (c *redisPipe) Release(_ context.Context, path string) error {
	c.one[0] = path
	return c.end(c.one[:])
}

func (c *redisPipe) batch(_ context.Context, paths []string) error {
	if err := c.claim(paths); err != nil {
		return err
	}
	return c.end(paths)
}

func (c *redisPipe) claim(paths []string) error {
	c.out = c.out[:0]
	for _, path := range paths {
		c.out = appendCommand(c.out, "SET", path, c.owner, "NX", "PX", redisLease)
	}
	return c.expect(len(paths), "+OK\r\n")
}

func (c *redisPipe) end(paths []string) error {
	c.out = c.out[:0]
	for _, path := range paths {
		c.out = appendCommand(c.out, "EVALSHA", c.sha, "1", path, c.owner)
	}
	return c.expect(len(paths), ":1\r\n")
}

// expect sends what is in out and reads so many equal answers.
func (c *redisPipe) expect(n int, answer string) error {
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	for range n {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if string(line) != answer {
			return fmt.Errorf("redis answers %q instead of %q", line, answer)
		}
	}
	return nil
}

// appendCommand appends a command as Redis reads it.
func appendCommand(out []byte, words ...string) []byte {
	out = append(out, '*')
	out = strconv.AppendInt(out, int64(len(words)), 10)
	for _, word := range words {
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(word)), 10)
		out = append(out, "\r\n"...)
		out = append(out, word...)
	}
	return append(out, "\r\n"...)
}
