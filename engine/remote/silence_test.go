package remote

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// piped returns an engine with a connection to a server in this process, which sends what answer
// returns for each frame.
func piped(t *testing.T, answer func(*wire.ClientFrame) *wire.ServerFrame) *Engine {
	ours, theirs := net.Pipe()
	e := &Engine{endpoint: &endpoint{addresses: []string{"pipe"}}}
	e.life, e.end = context.WithCancel(context.Background())
	c := newConn(e, ours, bufio.NewReader(ours), lockkeeper.Guarantees{})
	e.conn = c
	go c.receive()
	go c.write()
	go func() {
		in := bufio.NewReader(theirs)
		for {
			length, err := wire.ReadLength(in, wire.MaxFrame)
			if err != nil {
				return
			}
			message, err := wire.ReadMessage(in, length, nil, nil)
			if err != nil {
				return
			}
			f := new(wire.ClientFrame)
			if err := f.UnmarshalVT(message); err != nil {
				t.Error(err)
			}
			if said := answer(f); said != nil && wire.WriteFrame(theirs, said) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { e.Close(); theirs.Close() })
	return e
}

// follow follows all claims for at most an hour, and returns the error that ended the list.
func follow(t *testing.T, e *Engine) (err error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, told := range e.List(ctx, lockkeeper.Query{Follow: true}) {
		err = told
	}
	return errors.Join(err, ctx.Err())
}

// A follower gets an error when the server falls silent, and none while the server only has no changes.
func TestFollowerOfSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := piped(t, func(*wire.ClientFrame) *wire.ServerFrame { return nil })
		if err := follow(t, e); !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent server: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := piped(t, func(f *wire.ClientFrame) *wire.ServerFrame {
			said := new(wire.ServerFrame)
			for _, m := range f.GetRequests() {
				if m.GetPing() {
					said.Replies = append(said.Replies, &wire.Reply{Call: m.GetCall()})
				}
			}
			return said
		})
		if err := follow(t, e); errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server without changes: %v", err)
		}
	})
}
