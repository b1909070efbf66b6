package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// inUse is what the allocator of Redis has given out.
func (s *redisServer) inUse(ctx context.Context) (uint64, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.process.addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write(appendCommand(nil, "INFO", "memory")); err != nil {
		return 0, err
	}
	in := bufio.NewReader(conn)
	head, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	length, err := strconv.Atoi(strings.Trim(head, "$\r\n"))
	if err != nil {
		return 0, fmt.Errorf("redis answers INFO with %q", head)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(in, text); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("redis does not tell its memory: %q", text)
}

// occupations: a key for each lock, with owner and note as its value. Redis keeps
// no record of waiters.
func (p *redisPipePeer) occupations() []occupation {
	return []occupation{{heldOccupation, func(ctx context.Context, n int, counted func(func() error) error) error {
		all, err := p.open(ctx, 1)
		if err != nil {
			return err
		}
		defer all.close()
		c := all.locker(0).(*redisPipe)
		return counted(func() error {
			for i := range n {
				label := countedLabel(i)
				c.owner = label.As + " " + label.Note
				if err := c.Acquire(ctx, countedPath(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}}}
}
