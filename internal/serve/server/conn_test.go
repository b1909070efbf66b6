package server

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A slowConn delays the first removal of its deadline until another deadline is set, for at most
// 200 ms.
type slowConn struct {
	net.Conn
	first  sync.Once
	stands chan struct{}
	set    chan struct{}
}

func (c *slowConn) SetReadDeadline(at time.Time) error {
	if at.IsZero() {
		c.first.Do(func() {
			close(c.stands)
			select {
			case <-c.set:
			case <-time.After(200 * time.Millisecond):
			}
		})
	} else if at.Before(time.Now()) {
		defer close(c.set)
	}
	return c.Conn.SetReadDeadline(at)
}

// A slowListener accepts one connection as a slowConn.
type slowListener struct {
	net.Listener
	conn *slowConn
}

func (l *slowListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conn.Conn = nc
	return l.conn, nil
}

// A server that stops during a handshake does not wait for that client.
func TestShutdownDuringHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := memlock.New()
	defer e.Close()
	s := New(e, Options{})
	conn := &slowConn{stands: make(chan struct{}), set: make(chan struct{})}
	go s.Serve(&slowListener{l, conn})
	p := connect(t, l.Addr().String())
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	<-conn.stands
	ctx, cancel := context.WithTimeout(t.Context(), patience/2) // before the client gives up
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("an idle client keeps the server from stopping: %v", err)
	}
}

// Hints for a connection that has ended are not kept.
func TestEndedConnectionKeepsNoHints(t *testing.T) {
	s, address := startMemory(t)
	p := greeted(t, address)
	epoch := p.attach("ann")
	s.mu.Lock()
	var c *conn
	for c = range s.conns {
	}
	s.mu.Unlock()
	p.held("ann", epoch, 1, "db")
	p.net.Close()
	for ended := false; !ended; {
		s.mu.Lock()
		ended = len(s.conns) == 0
		s.mu.Unlock()
	}
	c.notify([]lockkeeper.Status{{Ref: lockkeeper.Ref{Session: "ann", ID: 1}, State: lockkeeper.Held}}, false)
	c.Lock()
	defer c.Unlock()
	if c.Out.Len() > 0 {
		t.Errorf("%d bytes are kept", c.Out.Len())
	}
}
