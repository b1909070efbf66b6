package main

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"time"
)

// redisServer is the part of a peer that stands on a Redis of its own, which
// keeps everything in memory and writes nothing to the disk.
type redisServer struct{ process *process }

// deleteIfMine is how users of Redis release: only what they still have.
const deleteIfMine = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end`

// redisLeaseTime is longer than any round. redisLease is the same in milliseconds.
const (
	redisLeaseTime = 30 * time.Second
	redisLease     = "30000"
)

var errNotHeld = errors.New("the lock was not held at its release")

func redisMissing() error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return errors.New("redis-server is not installed: run with -setup, or apt-get install redis-server")
	}
	return nil
}

func (s *redisServer) start(ctx context.Context, at place) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	s.process, err = launch(exec.Command("redis-server",
		"--bind", "127.0.0.1", "--port", ports[0], "--dir", at.dir, "--save", "", "--appendonly", "no"), at.log, false)
	if err != nil {
		return err
	}
	s.process.addr = net.JoinHostPort("127.0.0.1", ports[0])
	return s.process.ready(ctx, s.ping)
}

// ping succeeds when the server answers.
func (s *redisServer) ping(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.process.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	line, err := redisCall(conn, "PING")
	if err == nil && line != "+PONG" {
		err = errors.New("redis-server answers PING with " + line)
	}
	return err
}

func (s *redisServer) server() *process { return s.process }
func (s *redisServer) stop()            { s.process.stop() }

// redisCall sends one command whose answer is one line, or one line after its length.
func redisCall(conn net.Conn, words ...string) (string, error) {
	if _, err := conn.Write(appendCommand(nil, words...)); err != nil {
		return "", err
	}
	in := make([]byte, 1024)
	n, err := conn.Read(in)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(in[:n])), "\r\n")
	return lines[len(lines)-1], nil
}
