package main

import (
	"context"
	"net"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// ownServer is the part of a peer whose server is this program too.
type ownServer struct{ process *process }

func (s *ownServer) launch(kind string, at place) (err error) {
	s.process, err = launchSelf(kind, at)
	return err
}

func (s *ownServer) server() *process { return s.process }
func (s *ownServer) addr() string     { return s.process.addr }
func (s *ownServer) stop()            { s.process.stop() }

// noServer is the part of a peer that is within this process.
type noServer struct{}

func (noServer) start(context.Context, place) error { return nil }
func (noServer) server() *process                   { return nil }
func (noServer) stop()                              {}

// lockers are clients that each worker has one of, and what closes them.
type lockers struct {
	each []load.Locker
	shut []func()
}

func (l *lockers) locker(i int) load.Locker { return l.each[i] }

func (l *lockers) close() {
	for i := len(l.shut) - 1; i >= 0; i-- {
		l.shut[i]()
	}
}

// dialEach gives every worker a TCP connection of its own.
func dialEach(ctx context.Context, addr string, n int, client func(net.Conn, int) (load.Locker, error)) (clients,
	error) {
	all := &lockers{}
	for i := range n {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, func() { conn.Close() })
		c, err := client(conn, i)
		if err != nil {
			all.close()
			return nil, err
		}
		all.each = append(all.each, c)
	}
	return all, nil
}
