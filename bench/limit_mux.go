package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// muxPeer is the limit of servers whose clients share connections: an echo over
// two TCP connections, with numbered frames that travel together.
type muxPeer struct {
	ownServer
	sizes sizes
}

// muxConnections is how many connections multiplexing peers have.
const muxConnections = 2

func (p *muxPeer) about() about {
	return about{
		name: muxName, kinds: []kind{distinct},
		how: "two TCP connections for all; callers that arrive during a write join the next one",
	}
}

func (p *muxPeer) start(_ context.Context, at place) error { return p.launch("echo", at) }

func (p *muxPeer) open(ctx context.Context, n int) (clients, error) {
	all := &lockers{}
	var muxes []*mux
	for range min(n, muxConnections) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", p.addr())
		if err != nil {
			all.close()
			return nil, err
		}
		m := &mux{conn: conn, broken: make(chan struct{}), more: make(chan struct{}, 1)}
		muxes = append(muxes, m)
		all.shut = append(all.shut, func() { conn.Close() })
	}
	for i := range n {
		m := muxes[i%len(muxes)]
		c := &muxClient{mux: m, number: uint32(len(m.waiting)), answered: make(chan struct{}, 1), sizes: p.sizes}
		m.waiting = append(m.waiting, c.answered)
		all.each = append(all.each, c)
	}
	for _, m := range muxes {
		go m.read()
		go m.write()
	}
	return all, nil
}

// mux is one connection with many callers.
type mux struct {
	conn    net.Conn
	waiting []chan struct{} // by number; constant while it is read
	broken  chan struct{}
	err     error         // why; read after broken
	more    chan struct{} // wakes the writer

	mu      sync.Mutex
	pending []byte // frames for the next write
	spare   []byte
	writing bool // somebody is at it, the writer or a caller
}

// send writes the frame if nobody writes now. Else it goes with the next write.
func (m *mux) send(frame []byte) error {
	m.mu.Lock()
	m.pending = append(m.pending, frame...)
	if m.writing {
		m.mu.Unlock()
		return nil
	}
	m.writing = true
	err := m.flush()
	rest := len(m.pending) > 0
	m.writing = rest
	m.mu.Unlock()
	if rest {
		// The caller wants its answer: the others' frames are the writer's.
		m.more <- struct{}{}
	}
	return err
}

// flush writes what is pending. m.mu is held before and after, not meanwhile.
func (m *mux) flush() error {
	out := m.pending
	m.pending = m.spare[:0]
	m.mu.Unlock()
	_, err := m.conn.Write(out)
	m.mu.Lock()
	m.spare = out
	return err
}

// write writes what callers left behind, until the connection ends.
func (m *mux) write() {
	for {
		select {
		case <-m.more:
		case <-m.broken:
			return
		}
		m.mu.Lock()
		for len(m.pending) > 0 {
			if m.flush() != nil {
				m.mu.Unlock()
				return // the reader tells the callers
			}
		}
		m.writing = false
		m.mu.Unlock()
	}
}

// read gives answers to their callers until the connection ends.
func (m *mux) read() {
	defer close(m.broken)
	in := bufio.NewReaderSize(m.conn, 64<<10)
	for {
		head, err := in.Peek(echoHeader)
		if err != nil {
			m.err = err
			return
		}
		length, number := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[8:])
		if _, err := in.Discard(int(length)); err != nil {
			m.err = err
			return
		}
		m.waiting[number] <- struct{}{}
	}
}

type muxClient struct {
	mux      *mux
	number   uint32
	answered chan struct{}
	sizes    sizes
	buf      []byte
}

func (c *muxClient) Acquire(context.Context, string) error {
	return c.ask(c.sizes.Claim, c.sizes.Claimed)
}

func (c *muxClient) Release(context.Context, string) error {
	return c.ask(c.sizes.End, c.sizes.Ended)
}

func (c *muxClient) ask(length, answer int) error {
	if len(c.buf) < length {
		c.buf = make([]byte, length)
	}
	putFrame(c.buf[:length], answer, c.number)
	if err := c.mux.send(c.buf[:length]); err != nil {
		return err
	}
	select {
	case <-c.answered:
		return nil
	case <-c.mux.broken:
		return c.mux.err
	}
}
