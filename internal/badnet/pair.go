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

// pair is one connection of a client, and the one to the server that it stands for.
type pair struct {
	proxy          *Proxy
	client, server *net.TCPConn
	number         uint64
	life           context.Context // ends when the pair is cut
	end            context.CancelFunc
	story          story // written by the goroutine of the way up alone

	mu      sync.Mutex // guards all below, and is held while what was held back is written
	mood    Mood
	changed chan struct{} // closed when the mood changes
	held    [][]byte
	parted  bool // the client is cut off; what it sent last comes later
}

func newPair(p *Proxy, client, server *net.TCPConn, number uint64) *pair {
	c := &pair{proxy: p, client: client, server: server, number: number, changed: make(chan struct{})}
	c.life, c.end = context.WithCancel(p.life)
	return c
}

// run passes on until both directions have ended.
func (c *pair) run() {
	var both sync.WaitGroup
	both.Go(c.up)
	both.Go(c.down)
	both.Wait()
	c.cut(false)
}

// set changes the mood. A connection that the old one has spoilt is cut.
func (c *pair) set(m Mood) {
	c.mu.Lock()
	spoilt := c.mood.spoils() && !m.spoils()
	c.mood = m
	close(c.changed)
	c.changed = make(chan struct{})
	if !m.Hold && !c.parted {
		c.flush()
	}
	c.mu.Unlock()
	if spoilt {
		c.cut(true)
	}
}

// now is the mood, and what is closed when it changes.
func (c *pair) now() (Mood, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mood, c.changed
}

// up passes on frames of the client, until there are no more.
func (c *pair) up() {
	random := c.proxy.random(1, c.number)
	in := bufio.NewReaderSize(c.client, 64<<10)
	for {
		frame, err := readFrame(in)
		first := len(c.story.frames) == 0
		if err == nil {
			c.story.add(frame)
		}
		if len(frame) > 0 && !c.hold(frame, err == nil) {
			twice := err == nil && !first && c.twice(random)
			if !c.pass(true, frame, random) || twice && !c.pass(true, frame, random) {
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

// down passes on what the server sends, until there is no more.
func (c *pair) down() {
	c.stream(false, c.server, c.proxy.random(2, c.number))
	c.over(false)
}

// stream passes on bytes as they come.
func (c *pair) stream(up bool, from io.Reader, random *rand.Rand) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !c.pass(up, buffer[:n], random) || err != nil {
			return
		}
	}
}

// over ends one direction: the other end is told, if the mood lets it.
func (c *pair) over(up bool) {
	if !c.wait(up) {
		return
	}
	c.mu.Lock()
	m, parted := c.mood, c.parted
	c.mu.Unlock()
	switch {
	case m.way(up).Swallow, up && (m.Hold || parted):
		<-c.life.Done() // nobody is told
	case up:
		_ = c.server.CloseWrite()
	default:
		_ = c.client.CloseWrite()
	}
}

func (m *Mood) way(up bool) *Way {
	if up {
		return &m.Up
	}
	return &m.Down
}

// wait returns when nothing is stalled that way; false if the pair was cut.
func (c *pair) wait(up bool) bool {
	for counted := false; ; counted = true {
		m, changed := c.now()
		if !m.way(up).Stall {
			return c.life.Err() == nil
		}
		if !counted {
			c.proxy.counts.Stalled.Add(1)
		}
		select {
		case <-changed:
		case <-c.life.Done():
			return false
		}
	}
}

// pass writes bytes to the other end as the mood has it. It reports whether there
// may be more.
func (c *pair) pass(up bool, bytes []byte, random *rand.Rand) bool {
	if !c.wait(up) {
		return false
	}
	m, _ := c.now()
	way, to := m.way(up), c.client
	if up {
		to = c.server
	}
	switch {
	case way.Delay > 0 && !c.pause(upTo(random, way.Delay)):
		return false
	case way.Swallow:
		c.proxy.counts.Swallowed.Add(1)
		return true
	case way.Break && len(bytes) > 1:
		_, _ = to.Write(bytes[:1+random.IntN(len(bytes)-1)])
		c.proxy.counts.Broken.Add(1)
		c.cut(random.IntN(2) == 0)
		return false
	case way.Drip:
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

// broken is what follows when one end does not take what the other sends. Who is
// parted from its client has nobody to send to, and still reads.
func (c *pair) broken(up bool) bool {
	if !up && c.isParted() {
		return true
	}
	c.cut(true)
	return false
}

func (c *pair) isParted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parted
}

func (c *pair) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.life.Done():
		return false
	}
}

func (c *pair) twice(random *rand.Rand) bool {
	m, _ := c.now()
	if m.Twice == 0 || m.Hold || random.IntN(100) >= m.Twice {
		return false
	}
	c.proxy.counts.Twice.Add(1)
	return true
}

// cut ends the connection at both ends.
func (c *pair) cut(withReset bool) {
	if c.life.Err() == nil {
		c.proxy.counts.Cut.Add(1)
	}
	c.end()
	for _, end := range []*net.TCPConn{c.client, c.server} {
		if withReset {
			reset(end)
		} else {
			end.Close()
		}
	}
}

// reset closes a connection so that its other end is told of an error.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
