package badnet

import (
	"io"
	"time"
)

// Bounds of what is kept to be sent again.
const (
	mostFrames  = 64  // of one connection, the first and the latest
	mostStories = 256 // connections
	mostHeld    = 10_000
	longestEcho = time.Second // for which answers to what is sent late are taken, and dropped
)

// story is what a client sent, and when: the first frame and the latest ones.
type story struct {
	frames [][]byte
	at     []time.Time
}

func (s *story) add(frame []byte) {
	if len(s.frames) == mostFrames {
		s.frames = append(s.frames[:1], s.frames[2:]...)
		s.at = append(s.at[:1], s.at[2:]...)
	}
	s.frames, s.at = append(s.frames, frame), append(s.at, time.Now())
}

// since is the greeting, and all frames that are no older than that.
func (s *story) since(age time.Duration) [][]byte {
	for i := 1; i < len(s.frames); i++ {
		if time.Since(s.at[i]) <= age {
			return append([][]byte{s.frames[0]}, s.frames[i:]...)
		}
	}
	return nil
}

// remember keeps a story. It is called with p.mu held.
func (p *Proxy) remember(s story) {
	if len(s.frames) < 2 {
		return // a greeting alone
	}
	if len(p.past) == mostStories {
		p.past = p.past[1:]
	}
	p.past = append(p.past, s)
}

// replay sends frames to the server on a connection of their own, and returns how
// many of them it got.
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
		_ = c.SetReadDeadline(time.Now().Add(longestEcho))
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	})
	return sent
}

// hold keeps a frame back if the mood says so. What is no whole frame is lost then.
func (c *pair) hold(frame []byte, whole bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mood.Hold && !c.parted {
		return false
	}
	if whole && len(c.held) < mostHeld {
		c.held = append(c.held, frame)
	}
	return true
}

// part cuts the connection towards the client alone.
func (c *pair) part() {
	c.mu.Lock()
	c.parted = true
	c.mu.Unlock()
	c.proxy.counts.Cut.Add(1)
	reset(c.client)
}

// deliver gives the server what was held back. A moment later it sees that the
// client is gone.
func (c *pair) deliver() int {
	c.mu.Lock()
	frames := c.flush()
	c.mu.Unlock()
	c.proxy.counts.Late.Add(int64(frames))
	c.proxy.running.Go(func() {
		if c.pause(longestEcho) {
			c.cut(false)
		}
	})
	return frames
}

// flush writes what is held back. It is called with c.mu held.
func (c *pair) flush() (frames int) {
	for _, f := range c.held {
		if _, err := c.server.Write(f); err != nil {
			break
		}
		frames++
	}
	c.held = nil
	return frames
}
