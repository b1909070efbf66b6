package badnet

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// connection is a client's connection and the proxy's connection to the server.
type connection struct {
	proxy          *Proxy
	client, server *net.TCPConn
	number         uint64
	ctx            context.Context // ends when the connection is cut
	cancel         context.CancelFunc
	sent           sent // used only by the goroutine of up

	mu        sync.Mutex // guards the fields below, and is locked while held frames are written
	profile   Profile
	changed   chan struct{} // closed when the profile changes
	held      [][]byte
	clientCut bool // the client is cut off, and its last frames arrive late
}

func newConnection(p *Proxy, client, server *net.TCPConn, number uint64) *connection {
	c := &connection{proxy: p, client: client, server: server, number: number, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	return c
}

// run copies both directions until they have ended.
func (c *connection) run() {
	var both sync.WaitGroup
	both.Go(c.up)
	both.Go(c.down)
	both.Wait()
	c.cut(false)
}

// set changes the profile, and cuts a connection that is unusable after the old one.
func (c *connection) set(m Profile) {
	c.mu.Lock()
	unusable := c.profile.unusable() && !m.unusable()
	c.profile = m
	close(c.changed)
	c.changed = make(chan struct{})
	if !m.Hold && !c.clientCut {
		c.flush()
	}
	c.mu.Unlock()
	if unusable {
		c.cut(true)
	}
}

// now returns the profile, and a channel that is closed when it changes.
func (c *connection) now() (Profile, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.profile, c.changed
}

// up copies frames of the client to the server.
func (c *connection) up() {
	random := c.proxy.random(1, c.number)
	if c.proxy.frameless {
		c.stream(true, c.client, random)
		c.over(true)
		return
	}
	in := bufio.NewReaderSize(c.client, 64<<10)
	for {
		frame, err := readFrame(in)
		first := len(c.sent.frames) == 0
		if err == nil {
			c.sent.add(frame)
		}
		if len(frame) > 0 && !c.hold(frame, err == nil) {
			duplicate := err == nil && !first && c.duplicate(random)
			if !c.pass(true, frame, random) || duplicate && !c.pass(true, frame, random) {
				break
			}
		}
		if err == errNoFrames {
			c.stream(true, in, random)
		}
		if err != nil {
			break
		}
	}
	c.over(true)
}

// down copies bytes of the server to the client.
func (c *connection) down() {
	c.stream(false, c.server, c.proxy.random(2, c.number))
	c.over(false)
}

// stream copies bytes as they arrive.
func (c *connection) stream(up bool, from io.Reader, random *rand.Rand) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !c.pass(up, buffer[:n], random) || err != nil {
			return
		}
	}
}

// over ends one direction, and closes it at the other end if the profile allows.
func (c *connection) over(up bool) {
	if !c.wait(up) {
		return
	}
	c.mu.Lock()
	m, clientCut := c.profile, c.clientCut
	c.mu.Unlock()
	switch {
	case m.d(up).Discard, up && (m.Hold || clientCut):
		<-c.ctx.Done() // the other end does not notice
	case up:
		_ = c.server.CloseWrite()
	default:
		_ = c.client.CloseWrite()
	}
}

func (m *Profile) d(up bool) *Direction {
	if up {
		return &m.Up
	}
	return &m.Down
}

// wait returns true when the direction is not stalled, and false if the connection was cut.
func (c *connection) wait(up bool) bool {
	for counted := false; ; counted = true {
		m, changed := c.now()
		if !m.d(up).Stall {
			return c.ctx.Err() == nil
		}
		if !counted {
			c.proxy.counts.Stalled.Add(1)
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return false
		}
	}
}

// pass writes bytes to the other end, with the faults of the profile. It reports whether the direction
// goes on.
func (c *connection) pass(up bool, bytes []byte, random *rand.Rand) bool {
	if !c.wait(up) {
		return false
	}
	m, _ := c.now()
	d, to := m.d(up), c.client
	if up {
		to = c.server
	}
	switch {
	case d.Delay > 0 && !c.pause(upTo(random, d.Delay)):
		return false
	case d.Discard:
		c.proxy.counts.Discarded.Add(1)
		return true
	case d.Break && len(bytes) > 1:
		_, _ = to.Write(bytes[:1+random.IntN(len(bytes)-1)])
		c.proxy.counts.Broken.Add(1)
		c.cut(random.IntN(2) == 0)
		return false
	case d.Drip:
		c.proxy.counts.Dripped.Add(1)
		for len(bytes) > 0 && len(bytes) < 4096 {
			if _, err := to.Write(bytes[:1]); err != nil {
				return c.broken(up)
			}
			bytes = bytes[1:]
		}
	}
	if _, err := to.Write(bytes); err != nil {
		return c.broken(up)
	}
	return true
}

// broken handles a write error. A connection whose client was cut off goes on reading from the server.
func (c *connection) broken(up bool) bool {
	if !up && c.isClientCut() {
		return true
	}
	c.cut(true)
	return false
}

func (c *connection) isClientCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientCut
}

func (c *connection) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *connection) duplicate(random *rand.Rand) bool {
	m, _ := c.now()
	if m.Duplicate == 0 || m.Hold || random.IntN(100) >= m.Duplicate {
		return false
	}
	c.proxy.counts.Duplicate.Add(1)
	return true
}

// cut closes the connection at both ends.
func (c *connection) cut(withReset bool) {
	if c.ctx.Err() == nil {
		c.proxy.counts.Cut.Add(1)
	}
	c.cancel()
	for _, conn := range []*net.TCPConn{c.client, c.server} {
		if withReset {
			reset(conn)
		} else {
			conn.Close()
		}
	}
}

// reset closes a connection with a TCP reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
