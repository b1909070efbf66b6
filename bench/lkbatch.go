package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rawwire"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// frameLocker claims and releases many paths in one frame each, by the messages of package wire, on
// a connection and in a session of its own.
type frameLocker struct {
	*rawwire.Conn
	key   *wire.Key
	named bool // the session has its handle
	last  uint64
}

// longTTL is longer than a round: nothing renews the session.
const longTTL = time.Hour

func openFrames(address string) (*frameLocker, error) {
	c, err := rawwire.Dial(address, "")
	if err != nil {
		return nil, err
	}
	session := fmt.Sprintf("bench-%03d-frames", sessions.Add(1))
	reply, err := c.One(rawwire.Attach(session, longTTL))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &frameLocker{Conn: c, key: &wire.Key{Session: session, Epoch: reply.GetLease().GetEpoch()}}, nil
}

// batch claims all paths at once, and then releases all of them at once.
func (l *engineLocker) batch(_ context.Context, paths []string) error {
	if l.frames == nil {
		var err error
		if l.frames, err = openFrames(l.address); err != nil {
			return err
		}
	}
	return l.frames.batch(paths)
}

func (f *frameLocker) batch(paths []string) error {
	first := f.last + 1
	for _, path := range paths {
		f.last++
		want := wantOf(f.last, path)
		m := f.request(first)
		m.Claim = wire.NewWant(&want)
		f.Put(m)
	}
	replies, err := f.All(len(paths))
	if err != nil {
		return err
	}
	for _, reply := range replies {
		if state := reply.GetStatus().GetState(); state != wire.State_STATE_HELD {
			return fmt.Errorf("a path is %s, though nobody else wants it", state)
		}
	}
	for id := first; id <= f.last; id++ {
		m := f.request(f.last + 1)
		m.End = wire.NewEnding(&lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
		f.Put(m)
	}
	_, err = f.All(len(paths))
	return err
}

// request returns a request of the session, all of whose claims below lowestOpen were answered.
func (f *frameLocker) request(lowestOpen uint64) *wire.Request {
	m := &wire.Request{Handle: wire.NewHandle(0, 1), LowestOpen: lowestOpen}
	if !f.named {
		m.Key, f.named = f.key, true
	}
	return m
}

// close ends the session and the connection.
func (f *frameLocker) close() {
	_ = f.SetDeadline(time.Now().Add(stopBound))
	m := f.request(f.last + 1)
	m.End = wire.NewEnding(&lockkeeper.Ending{Kind: lockkeeper.Leave})
	_, _ = f.One(m) // without an answer the session ends by its TTL
	f.Close()
}
