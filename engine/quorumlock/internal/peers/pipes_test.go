package peers

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pipes is a network in memory, for bubbles of synctest.
type pipes struct {
	t         testing.TB
	ca        *ca
	mu        sync.Mutex
	listeners map[string]*pipeListener
	dials     atomic.Int64
	links     []*link // of the callers, in the order of their connections
}

func newPipes(t testing.TB) *pipes {
	return &pipes{t: t, ca: newCA(t), listeners: make(map[string]*pipeListener)}
}

// node returns a node that dials through the network and does not listen yet.
func (p *pipes) node(id uint64, change func(*Settings, *bounds)) *node {
	n := p.ca.newNode(id, change)
	n.dial = p.dial
	p.t.Cleanup(n.Close)
	return n
}

// listen lets n listen at an address.
func (p *pipes) listen(n *node, address string) {
	l := &pipeListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	p.listeners[address] = l
	p.mu.Unlock()
	n.serve(l)
}

func (p *pipes) dial(ctx context.Context, address string) (net.Conn, error) {
	p.dials.Add(1)
	p.mu.Lock()
	l := p.listeners[address]
	p.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens there")
	}
	ours, theirs := net.Pipe()
	up, down := &link{Conn: ours}, &link{Conn: theirs}
	up.other, down.other = down, up
	select {
	case l.conns <- down:
	case <-l.closed:
		return nil, errors.New("nobody listens there any more")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, up)
	return up, nil
}

// A link is one end of a connection.
type link struct {
	net.Conn
	other   *link
	discard atomic.Bool  // what it sends is lost
	rate    atomic.Int64 // bytes it sends in a second; 0: no limit
}

func (l *link) Write(b []byte) (int, error) {
	if l.discard.Load() {
		return len(b), nil
	}
	if rate := l.rate.Load(); rate > 0 {
		<-time.After(time.Second * time.Duration(len(b)) / time.Duration(rate))
	}
	return l.Conn.Write(b)
}

type pipeListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr  { return l }
func (l *pipeListener) Network() string { return "pipe" }
func (l *pipeListener) String() string  { return l.address }
