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

// Proxy is a bad network before one server. It begins as a good one. It is safe
// for concurrent use.
type Proxy struct {
	listener net.Listener
	seed     uint64
	counts   Counts
	life     context.Context
	end      context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	server  string
	made    uint64 // connections so far
	closed  bool
	refuses bool
	mood    Mood // of connections that no weather has reached
	pairs   map[*pair]struct{}
	past    []story
	storm   *storm // nil: no weather
}

// Counts is how often each fault has happened. A test that needs faults looks
// here whether it had any.
type Counts struct {
	Connections, Refused, Cut, Broken, Stalled, Swallowed, Dripped, Twice, Late, Replayed atomic.Int64
}

func (c *Counts) String() string {
	return fmt.Sprintf("%d connections, %d refused, %d cut, %d of them within a message; %d writes stalled, %d "+
		"swallowed, %d dripped; %d frames doubled, %d late, %d replayed",
		c.Connections.Load(), c.Refused.Load(), c.Cut.Load(), c.Broken.Load(), c.Stalled.Load(), c.Swallowed.Load(),
		c.Dripped.Load(), c.Twice.Load(), c.Late.Load(), c.Replayed.Load())
}

// New listens on a port of the loopback for clients of the server, which need not
// run yet. Close ends it.
func New(server string, seed uint64) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, seed: seed, server: server, pairs: make(map[*pair]struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts is how often each fault has happened so far.
func (p *Proxy) Counts() *Counts { return &p.counts }

// Close cuts all connections and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	s := p.storm
	p.storm = nil
	p.mu.Unlock()
	p.end()
	p.listener.Close()
	for _, c := range p.open() {
		c.cut(true)
	}
	if s != nil {
		s.end()
		s.running.Wait() // first, since what it does may start more that runs
	}
	p.running.Wait()
}

// Set gives all connections, those to come included, that mood. Weather must not
// be at work.
func (p *Proxy) Set(m Mood) {
	p.mu.Lock()
	p.mood = m
	p.mu.Unlock()
	for _, c := range p.open() {
		c.set(m)
	}
}

// Refuse has every new connection closed at once, until it is called with false.
func (p *Proxy) Refuse(refuses bool) {
	p.mu.Lock()
	p.refuses = refuses
	p.mu.Unlock()
}

// Cut ends all connections, with a reset or in good order.
func (p *Proxy) Cut(reset bool) {
	for _, c := range p.open() {
		c.cut(reset)
	}
}

// Part cuts all connections towards their clients alone. What was held back, by
// [Mood.Hold], the server gets when deliver is called, of connections that it
// believes to be open still; deliver returns how many frames that were.
func (p *Proxy) Part() (deliver func() int) {
	parted := p.open()
	for _, c := range parted {
		c.part()
	}
	return func() (frames int) {
		for _, c := range parted {
			frames += c.deliver()
		}
		return frames
	}
}

// Replay sends what the connections of the past once sent to the server again,
// each on a new connection. It returns how many frames that were.
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

// connect makes the way to the server for one client, and is that way.
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
	c := newPair(p, client, server, number)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		c.cut(true)
		return
	}
	p.pairs[c] = struct{}{}
	c.mood = p.mood
	s := p.storm
	p.mu.Unlock()
	if s != nil {
		s.cover(c)
	}
	c.run()
	p.mu.Lock()
	delete(p.pairs, c)
	p.remember(c.story)
	p.mu.Unlock()
}

// dial connects to the server; nil if it is not there.
func (p *Proxy) dial() *net.TCPConn {
	p.mu.Lock()
	to := p.server
	p.mu.Unlock()
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(p.life, "tcp", to)
	if err != nil {
		return nil
	}
	return c.(*net.TCPConn)
}

func (p *Proxy) open() []*pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*pair, 0, len(p.pairs))
	for c := range p.pairs {
		all = append(all, c)
	}
	return all
}

func (p *Proxy) random(stream, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(p.seed+stream<<32, number))
}
