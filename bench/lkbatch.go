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
	session string
	epoch   uint64
	named   bool // the session has its handle
	last    uint64
	wants   []lockkeeper.Want // of the batch at hand
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
	return &frameLocker{Conn: c, session: session, epoch: reply.GetLease().GetEpoch()}, nil
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

// batch writes and reads the messages as engine/remote does.
func (f *frameLocker) batch(paths []string) error {
	first := f.last + 1
	f.wants = f.wants[:0]
	for _, path := range paths {
		f.last++
		f.wants = append(f.wants, wantOf(f.last, path))
		f.PutClaim(f.call(first), &f.wants[len(f.wants)-1])
	}
	answered := 0
	err := f.Answers(len(paths), func(a *wire.Answer) error {
		if a.Result == wire.ResultError {
			return refusalOf(a)
		}
		var status lockkeeper.Status
		if err := a.Status(f.session, &f.wants[answered], &status); err != nil {
			return err
		}
		answered++
		if status.State != lockkeeper.Held {
			return fmt.Errorf("%s is %s, though nobody else wants it", status.Ref, status.State)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id := first; id <= f.last; id++ {
		f.PutEnd(f.call(f.last+1), &lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
	}
	return f.Answers(len(paths), refusalOf)
}

// refusalOf returns the refusal that an answer is; nil if it is none.
func refusalOf(a *wire.Answer) error {
	if a.Result != wire.ResultError {
		return nil
	}
	refusal, err := a.Error()
	if err != nil {
		return err
	}
	return refusal
}

// call returns a request of the session, all of whose claims below lowestOpen were answered.
func (f *frameLocker) call(lowestOpen uint64) *wire.Call {
	m := &wire.Call{Handle: wire.NewHandle(0, 1), Named: !f.named, Key: lockkeeper.Key{LowestOpen: lowestOpen}}
	if !f.named {
		m.Key.Session, m.Key.Epoch, f.named = f.session, f.epoch, true
	}
	return m
}

// close ends the session and the connection.
func (f *frameLocker) close() {
	_ = f.SetDeadline(time.Now().Add(stopBound))
	f.PutEnd(f.call(f.last+1), &lockkeeper.Ending{Kind: lockkeeper.Leave})
	_ = f.Answers(1, refusalOf) // without an answer the session ends by its TTL
	f.Close()
}
