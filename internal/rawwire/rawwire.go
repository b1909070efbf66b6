// Package rawwire is a client of the wire protocol that says exactly what a test wants.
package rawwire

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// patience bounds each wait, as a safety net.
const patience = 30 * time.Second

// Conn is one connection. It is for one goroutine.
type Conn struct {
	net.Conn
	Hints  int    // number received so far
	Number uint64 // of the latest request

	in   *bufio.Reader
	out  wire.Outbox
	room []byte // of the frame read last
	sent []byte // memory for the requests of Answers
}

// Dial connects and says hello, with a token if that is not empty.
func Dial(address, token string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: nc, in: bufio.NewReader(nc)}
	_ = c.SetDeadline(time.Now().Add(patience))
	first := &wire.Hello{Protocol: wire.Protocol, Client: "test", Token: token}
	if err := wire.WriteFrame(c, &wire.ClientFrame{Hello: first}); err != nil {
		c.Close()
		return nil, err
	}
	f, err := c.Frame()
	if err == nil && f.GetWelcome() == nil {
		err = errors.New("the server does not say welcome")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// message reads the next frame's message. It is valid until the next call.
func (c *Conn) message() ([]byte, error) {
	length, err := wire.ReadLength(c.in, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	c.room, err = wire.ReadMessage(c.in, length, c.room, nil)
	return c.room, err
}

// Frame reads the next frame.
func (c *Conn) Frame() (*wire.ServerFrame, error) {
	message, err := c.message()
	if err != nil {
		return nil, err
	}
	f := new(wire.ServerFrame)
	if err := f.UnmarshalVT(message); err != nil {
		return nil, err
	}
	if f.GetRefused() != nil {
		return f, fmt.Errorf("refused: %w", f.GetRefused().Read())
	}
	c.Hints += len(f.GetChanged())
	return f, nil
}

// Put adds a request to the next send.
func (c *Conn) Put(m *wire.Request) {
	c.Number++
	m.Call = c.Number
	c.out.PutRequest(m)
}

// PutClaim adds a request of the call to the next send: a claim of w.
func (c *Conn) PutClaim(call *wire.Call, w *lockkeeper.Want) {
	c.Number++
	call.Number = c.Number
	c.out.PutClaim(call, w)
}

// PutEnd adds a request of the call to the next send: the ending e.
func (c *Conn) PutEnd(call *wire.Call, e *lockkeeper.Ending) {
	c.Number++
	call.Number = c.Number
	c.out.PutEnd(call, e)
}

// Answers sends the requests that were put, which must be so few that the network takes them without
// blocking. It reads until n requests are answered, and calls each with every answer. An answer is
// valid only during that call. Answers decodes nothing else, and ends at a frame with anything but
// answers.
func (c *Conn) Answers(n int, each func(*wire.Answer) error) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	frames := c.out.Take(c.sent)
	c.sent = frames
	if _, err := c.Write(frames); err != nil {
		return err
	}
	for n > 0 {
		message, err := c.message()
		if err != nil {
			return err
		}
		e := wire.NewElements(message)
		for e.Next() {
			if e.Field() != wire.FieldReplies {
				return fmt.Errorf("the frame has field %d, and not only answers", e.Field())
			}
			a, err := wire.ParseAnswer(e.Message())
			if err == nil {
				err = each(&a)
			}
			if err != nil {
				return err
			}
			if !a.More {
				n--
			}
		}
		if e.Err() != nil {
			return e.Err()
		}
	}
	return nil
}

// Take returns the requests that were put, as frames, and removes them.
func (c *Conn) Take() []byte { return c.out.Take(nil) }

// Send sends the requests that were put. It waits for no answer.
func (c *Conn) Send() error {
	_, err := c.Write(c.Take())
	return err
}

// All sends the requests that were put, and reads until n requests are answered, or until an answer
// is an error.
func (c *Conn) All(n int) ([]*wire.Reply, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	written := make(chan error, 1)
	bytes := c.Take()
	go func() {
		_, err := c.Write(bytes)
		written <- err
	}()
	var replies []*wire.Reply
	for ended := 0; ended < n; {
		f, err := c.Frame()
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

// One sends one request and returns its last answer.
func (c *Conn) One(m *wire.Request) (*wire.Reply, error) {
	c.Put(m)
	replies, err := c.All(1)
	if err != nil {
		return nil, err
	}
	return replies[len(replies)-1], nil
}

// Attach is a request to attach a session.
func Attach(session string, ttl time.Duration) *wire.Request {
	return &wire.Request{Attach: wire.NewSession(&lockkeeper.Session{ID: session, TTL: ttl})}
}

// Claim is a request for an exclusive lock.
func Claim(session string, epoch, id uint64, path string, wait time.Duration) *wire.Request {
	targets := []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}}
	w := lockkeeper.Want{ID: id, Wait: wait, Targets: targets}
	return &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Claim: wire.NewWant(&w)}
}

// Release is a request to release a claim.
func Release(session string, epoch, id uint64) *wire.Request {
	return End(session, epoch, &lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
}

// End is a request to end something.
func End(session string, epoch uint64, e *lockkeeper.Ending) *wire.Request {
	return &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, End: wire.NewEnding(e)}
}

// Renew is a request to renew a session.
func Renew(session string, epoch uint64) *wire.Request {
	return &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Renew: true}
}

// List is a request for a list, with credit for that many statuses.
func List(q lockkeeper.Query, credit uint32) *wire.Request {
	return &wire.Request{List: wire.NewQuery(&q, credit)}
}

// A Locker is a well-behaved client with one session, that locks and releases a path of its own.
type Locker struct {
	*Conn
	Session string
	Epoch   uint64

	path   string
	claims uint64
}

// Open connects and attaches a session.
func Open(address, token, session, path string) (*Locker, error) {
	c, err := Dial(address, token)
	if err != nil {
		return nil, err
	}
	l := &Locker{Conn: c, Session: session, path: path}
	reply, err := l.One(Attach(session, time.Minute))
	if err != nil {
		c.Close()
		return nil, err
	}
	l.Epoch = reply.GetLease().GetEpoch()
	return l, nil
}

// Once locks and releases, and returns how long that took.
func (l *Locker) Once() (time.Duration, error) {
	began := time.Now()
	l.claims++
	reply, err := l.One(Claim(l.Session, l.Epoch, l.claims, l.path, 0))
	if err == nil && reply.GetStatus().GetState() != wire.State_STATE_HELD {
		err = fmt.Errorf("not granted: %v", reply.GetStatus())
	}
	if err == nil {
		_, err = l.One(Release(l.Session, l.Epoch, l.claims))
	}
	return time.Since(began), err
}
