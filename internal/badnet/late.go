package badnet

import (
	"io"
	"time"
)

// Bounds of the frames that are kept for replays.
const (
	maxFrames = 64  // per connection: the first and the latest
	maxPast   = 256 // connections
	maxHeld   = 10_000
	maxEcho   = time.Second // time in which answers to late frames are read and dropped
)

// sent is the frames of a client with their times: the first one and the latest ones.
type sent struct {
	frames [][]byte
	at     []time.Time
}

func (s *sent) add(frame []byte) {
	if len(s.frames) == maxFrames {
		s.frames = append(s.frames[:1], s.frames[2:]...)
		s.at = append(s.at[:1], s.at[2:]...)
	}
	s.frames, s.at = append(s.frames, frame), append(s.at, time.Now())
}

// since returns the handshake and all frames that are not older than age.
func (s *sent) since(age time.Duration) [][]byte {
	for i := 1; i < len(s.frames); i++ {
		if time.Since(s.at[i]) <= age {
			return append([][]byte{s.frames[0]}, s.frames[i:]...)
		}
	}
	return nil
}

// remember keeps the frames of a closed connection. The caller has locked p.mu.
func (p *Proxy) remember(s sent) {
	if len(s.frames) < 2 {
		return // only a handshake
	}
	if len(p.past) == maxPast {
		p.past = p.past[1:]
	}
	p.past = append(p.past, s)
}

// replay sends frames to the server on a new connection, and returns the number of frames written.
func (p *Proxy) replay(frames [][]byte) (sent int) {
	c := p.dial()
	if c == nil {
		return 0
	}
	for _, f := range frames {
		if _, err := c.Write(f); err != nil {
			break
		}
		sent++
	}
	p.counts.Replayed.Add(int64(sent))
	p.running.Go(func() {
		_ = c.SetReadDeadline(time.Now().Add(maxEcho))
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	})
	return sent
}

// hold keeps a frame back if the profile says so. It drops an incomplete frame.
func (c *connection) hold(frame []byte, whole bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.profile.Hold && !c.clientCut {
		return false
	}
	if whole && len(c.held) < maxHeld {
		c.held = append(c.held, frame)
	}
	return true
}

// cutClient cuts the connection to the client only.
func (c *connection) cutClient() {
	c.mu.Lock()
	c.clientCut = true
	c.mu.Unlock()
	c.proxy.counts.Cut.Add(1)
	reset(c.client)
}

// deliver sends the held frames to the server. Shortly after, the server sees the end of the
// connection.
func (c *connection) deliver() int {
	c.mu.Lock()
	frames := c.flush()
	c.mu.Unlock()
	c.proxy.counts.Late.Add(int64(frames))
	c.proxy.running.Go(func() {
		if c.pause(maxEcho) {
			c.cut(false)
		}
	})
	return frames
}

// flush writes the held frames. The caller has locked c.mu.
func (c *connection) flush() (frames int) {
	for _, f := range c.held {
		if _, err := c.server.Write(f); err != nil {
			break
		}
		frames++
	}
	c.held = nil
	return frames
}
