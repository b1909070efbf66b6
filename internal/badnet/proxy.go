package badnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a network with faults in front of one server. It begins without faults. It is safe for
// concurrent use.
type Proxy struct {
	listener  net.Listener
	seed      uint64
	counts    Counts
	ctx       context.Context
	cancel    context.CancelFunc
	frameless bool
	running   sync.WaitGroup

	mu          sync.Mutex
	server      string
	made        uint64 // number of connections so far
	closed      bool
	refuses     bool
	profile     Profile // of new connections
	connections map[*connection]struct{}
	past        []sent
	run         *run // nil: no schedule
}

// Counts counts the faults. A test that needs faults checks here that they occurred.
type Counts struct {
	Connections, Refused, Cut, Broken, Stalled, Discarded, Dripped, Duplicate, Late, Replayed atomic.Int64
}

func (c *Counts) String() string {
	return fmt.Sprintf("%d connections, %d refused, %d cut, %d of them within a message; %d writes stalled, %d "+
		"discarded, %d dripped; %d frames duplicated, %d late, %d replayed",
		c.Connections.Load(), c.Refused.Load(), c.Cut.Load(), c.Broken.Load(), c.Stalled.Load(), c.Discarded.Load(),
		c.Dripped.Load(), c.Duplicate.Load(), c.Late.Load(), c.Replayed.Load())
}

// New listens on a loopback port for clients of the server, which need not run yet. Close ends it.
func New(server string, seed uint64) (*Proxy, error) {
	return listen(server, seed, false)
}

// NewFrameless is as New, for a server whose protocol has no frames. No message is duplicated, held
// or replayed.
func NewFrameless(server string, seed uint64) (*Proxy, error) { return listen(server, seed, true) }

func listen(server string, seed uint64, frameless bool) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener:    l,
		seed:        seed,
		server:      server,
		frameless:   frameless,
		connections: make(map[*connection]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts returns the counts so far.
func (p *Proxy) Counts() *Counts { return &p.counts }

// Close cuts all connections, and returns when all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	s := p.run
	p.run = nil
	p.mu.Unlock()
	p.cancel()
	p.listener.Close()
	for _, c := range p.open() {
		c.cut(true)
	}
	if s != nil {
		s.cancel()
		s.running.Wait() // first, because it may start more goroutines
	}
	p.running.Wait()
}

// Set sets the profile of all connections, including future ones. No schedule may run.
func (p *Proxy) Set(m Profile) {
	p.mu.Lock()
	p.profile = m
	p.mu.Unlock()
	for _, c := range p.open() {
		c.set(m)
	}
}

// Refuse closes every new connection at once, until it is called with false.
func (p *Proxy) Refuse(refuses bool) {
	p.mu.Lock()
	p.refuses = refuses
	p.mu.Unlock()
}

// Cut closes all connections, with a TCP reset or normally.
func (p *Proxy) Cut(reset bool) {
	for _, c := range p.open() {
		c.cut(reset)
	}
}

// CutClients cuts all connections to their clients only. deliver sends the frames that [Profile.Hold]
// has kept to the server, which still regards the connections as open; it returns their number.
func (p *Proxy) CutClients() (deliver func() int) {
	clientCut := p.open()
	for _, c := range clientCut {
		c.cutClient()
	}
	return func() (frames int) {
		for _, c := range clientCut {
			frames += c.deliver()
		}
		return frames
	}
}

// Replay sends the frames of all closed connections to the server again, each on a new connection. It
// returns the number of frames.
func (p *Proxy) Replay() (frames int) {
	p.mu.Lock()
	past := p.past
	p.past = nil
	p.mu.Unlock()
	for _, s := range past {
		frames += p.replay(s.frames)
	}
	return frames
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

// connect connects one client to the server, and runs the connection.
func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	refuses, number := p.refuses, p.made
	p.made++
	p.mu.Unlock()
	var server *net.TCPConn
	if !refuses {
		server = p.dial()
	}
	if server == nil {
		p.counts.Refused.Add(1)
		reset(client)
		return
	}
	p.counts.Connections.Add(1)
	c := newConnection(p, client, server, number)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		c.cut(true)
		return
	}
	p.connections[c] = struct{}{}
	c.profile = p.profile
	s := p.run
	p.mu.Unlock()
	if s != nil {
		s.add(c)
	}
	c.run()
	p.mu.Lock()
	delete(p.connections, c)
	p.remember(c.sent)
	p.mu.Unlock()
}

// dial connects to the server, or returns nil.
func (p *Proxy) dial() *net.TCPConn {
	p.mu.Lock()
	to := p.server
	p.mu.Unlock()
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(p.ctx, "tcp", to)
	if err != nil {
		return nil
	}
	return c.(*net.TCPConn)
}

func (p *Proxy) open() []*connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*connection, 0, len(p.connections))
	for c := range p.connections {
		all = append(all, c)
	}
	return all
}

func (p *Proxy) random(stream, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed+stream<<32, number))
}
