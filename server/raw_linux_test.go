package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/wire"
)

// raw is a client that says exactly what the test wants. It is used by one
// goroutine.
type raw struct {
	net.Conn
	in     *bufio.Reader
	out    wire.Outbox
	room   []byte
	number uint64
	hints  int // how many came so far
}

func dialRaw(address string) (*raw, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	r := &raw{Conn: c, in: bufio.NewReader(c)}
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := wire.WriteFrame(c, &wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Client: "test"}}); err != nil {
		return nil, err
	}
	f, err := r.frame()
	if err == nil && f.GetWelcome() == nil {
		err = errors.New("the server does not say welcome")
	}
	return r, err
}

func raws(t *testing.T, address string, n int) []*raw {
	t.Helper()
	all := make([]*raw, n)
	for i := range all {
		r, err := dialRaw(address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { r.Close() })
		all[i] = r
	}
	return all
}

// frame reads the next frame.
func (r *raw) frame() (*wire.ServerFrame, error) {
	length, err := wire.ReadLength(r.in, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	if r.room, err = wire.ReadMessage(r.in, length, r.room, nil); err != nil {
		return nil, err
	}
	f := new(wire.ServerFrame)
	if err := f.UnmarshalVT(r.room); err != nil {
		return nil, err
	}
	if f.GetRefused() != nil {
		return f, fmt.Errorf("refused: %w", f.GetRefused().Read())
	}
	r.hints += len(f.GetChanged())
	return f, nil
}

// put makes a request, to be sent by all.
func (r *raw) put(m *wire.Request) {
	r.number++
	m.Id = r.number
	r.out.PutRequest(m)
}

// send sends what was put, and waits for no answer.
func (r *raw) send() error {
	_, err := r.Write(r.out.Take(nil))
	return err
}

// all sends what was put and reads until everything is answered.
func (r *raw) all(n int) ([]*wire.Reply, error) {
	_ = r.SetDeadline(time.Now().Add(patience))
	written := make(chan error, 1)
	bytes := r.out.Take(nil)
	go func() {
		_, err := r.Write(bytes)
		written <- err
	}()
	var replies []*wire.Reply
	for ended := 0; ended < n; {
		f, err := r.frame()
		if err != nil {
			return replies, err
		}
		for _, m := range f.GetReplies() {
			if m.GetError() != nil {
				return replies, m.GetError().Read()
			}
			replies = append(replies, m)
			if !m.GetMore() {
				ended++
			}
		}
	}
	return replies, <-written
}

// one sends one request and returns its last answer.
func (r *raw) one(m *wire.Request) (*wire.Reply, error) {
	r.put(m)
	replies, err := r.all(1)
	if err != nil {
		return nil, err
	}
	return replies[len(replies)-1], nil
}

func attach(session string, ttl time.Duration) *wire.Request {
	return &wire.Request{Attach: wire.SendSession(&lockkeeper.Session{ID: session, TTL: ttl})}
}

func claim(session string, epoch, id uint64, path string, wait time.Duration) *wire.Request {
	w := lockkeeper.Want{ID: id, Wait: wait, Targets: []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}}}
	return &wire.Request{Session: session, Epoch: epoch, Claim: wire.SendWant(&w)}
}

func release(session string, epoch, id uint64) *wire.Request {
	return &wire.Request{Session: session, Epoch: epoch, End: wire.SendEnding(&lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})}
}

// locker is a well-behaved client that locks and releases a path of its own.
type locker struct {
	*raw
	session string
	epoch   uint64
	claims  uint64
}

func newLocker(address, session string) (*locker, error) {
	r, err := dialRaw(address)
	if err != nil {
		return nil, err
	}
	l := &locker{raw: r, session: session}
	reply, err := l.one(attach(session, time.Minute))
	if err != nil {
		return nil, err
	}
	l.epoch = reply.GetLease().GetEpoch()
	return l, nil
}

func mustLocker(t *testing.T, address, session string) *locker {
	t.Helper()
	l, err := newLocker(address, session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// once locks and releases, and says how long that took.
func (l *locker) once() (time.Duration, error) {
	began := time.Now()
	l.claims++
	reply, err := l.one(claim(l.session, l.epoch, l.claims, l.session, 0))
	if err == nil && reply.GetStatus().GetState() != wire.State_STATE_HELD {
		err = fmt.Errorf("not granted: %v", reply.GetStatus())
	}
	if err == nil {
		_, err = l.one(release(l.session, l.epoch, l.claims))
	}
	return time.Since(began), err
}
