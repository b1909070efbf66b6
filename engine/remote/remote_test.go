package remote_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

func TestAddressesAreChecked(t *testing.T) {
	for _, c := range []struct {
		text  string
		valid bool
	}{
		{"host", true}, {"host:7420", true}, {"127.0.0.1", true}, {"[::1]", true}, {"[::1]:1", true}, {"a,b:1,[::1]", true},
		{"", false}, {"host:", false}, {":7420", false}, {"host:0", false}, {"host:99999", false}, {"host:x", false},
		{"a,,b", false},
		{"host/path", false}, {"user@host", false}, {"::1", false}, {strings.Repeat("a,", 16) + "a", false},
	} {
		if err := remote.Check(c.text); (err == nil) != c.valid || err != nil && !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

// pretend starts a server in which answer serves each connection.
func pretend(t *testing.T, answer func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { nc.Close() })
			go answer(nc, bufio.NewReader(nc))
		}
	}()
	return l.Addr().String()
}

// request reads the next frame of a client.
func request(in *bufio.Reader) (*wire.ClientFrame, error) {
	length, err := wire.ReadLength(in, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	message, err := wire.ReadMessage(in, length, nil, nil)
	if err != nil {
		return nil, err
	}
	f := new(wire.ClientFrame)
	return f, f.UnmarshalVT(message)
}

// welcomed greets a client as a server of memlock does.
func welcomed(nc net.Conn, in *bufio.Reader) error {
	if _, err := request(in); err != nil {
		return err
	}
	return wire.WriteFrame(nc, &wire.ServerFrame{Welcome: &wire.Welcome{
		Protocol: wire.Protocol, Guarantees: wire.NewGuarantees(memlock.New().Guarantees()),
	}})
}

// A server that is not Lockkeeper is reported as unavailable, and never as a path that is taken.
func TestForeignServersAreUnavailable(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()
	for name, c := range map[string]struct {
		address string
		says    string
	}{
		"nobody there": {nobody, "lk serve"},
		"hangs up": {pretend(t, func(nc net.Conn, _ *bufio.Reader) { nc.Close() }),
			"does not answer as a Lockkeeper server"},
		"a web server": {pretend(t, func(nc net.Conn, _ *bufio.Reader) {
			nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			nc.Close()
		}), "does not answer as a Lockkeeper server"},
		"another protocol": {pretend(t, func(nc net.Conn, in *bufio.Reader) {
			wire.WriteFrame(nc, &wire.ServerFrame{Welcome: &wire.Welcome{Protocol: 9}})
		}), "protocol 9"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := remote.Open(t.Context(), c.address)
			if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, should say %q", err, c.says)
			}
		})
	}
	t.Run("refuses", func(t *testing.T) {
		address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
			wire.WriteFrame(nc,
				&wire.ServerFrame{Refused: wire.NewError(&lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "not you"})})
		})
		if _, err := remote.Open(t.Context(), address); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("%v", err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		address := pretend(t, func(net.Conn, *bufio.Reader) {})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := remote.Open(ctx, address); !errors.Is(err, lockkeeper.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// The client uses the first of several servers that answers, and another one when it is gone.
func TestSeveralServers(t *testing.T) {
	shared := memlock.New()
	first, one := serve(t, shared)
	_, two := serve(t, shared)
	e := dial(t, "127.0.0.1:1,"+one+","+two)
	defer e.Close()
	c := lockkeeper.New(e)
	defer c.Close()
	hold, err := c.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := c.Lock(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Err(); err != nil {
		t.Errorf("the hold did not survive the change: %v", err)
	}
	other.Release(t.Context())
	if err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client leaves a server that does not answer, and the next call opens another connection.
func TestClientReconnectsAfterSilence(t *testing.T) {
	connections := make(chan net.Conn, 10)
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		connections <- nc
		if welcomed(nc, in) == nil {
			request(in) // which is never answered
		}
	})
	e := dial(t, address)
	defer e.Close()
	<-connections
	for left := false; !left; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := e.Renew(ctx, lockkeeper.Key{Session: "k3v9", Epoch: 1})
		cancel()
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		select {
		case <-connections:
			left = true // the previous call left the silent server
		default: // the first call, or one that was sent too close to its deadline
		}
	}
	// A call that its caller cancels does not end the connection.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Renew(ctx, lockkeeper.Key{Session: "k3v9", Epoch: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// When the connection ends or hints are missing, sessions are notified to renew.
func TestMissedHintsMakeSessionsRenew(t *testing.T) {
	notified := make(chan int, 10)
	next := make(chan struct{})
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		f, err := request(in)
		if err != nil {
			return
		}
		id := f.GetRequests()[0].GetCall()
		wire.WriteFrame(nc,
			&wire.ServerFrame{Replies: []*wire.Reply{{Call: id, Lease: &wire.Lease{Epoch: 5, Ttl: int64(time.Minute)}}}})
		wire.WriteFrame(nc, &wire.ServerFrame{Changed: []*wire.Status{{Session: "k3v9", Id: 1}, {Session: "k3v9", Id: 2},
			{Session: "other", Id: 3}}})
		wire.WriteFrame(nc, &wire.ServerFrame{Missed: true})
		<-next
		nc.Close()
	})
	e := dial(t, address)
	defer e.Close()
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "k3v9", TTL: time.Minute}, func(s []lockkeeper.Status) {
		notified <- len(s)
	})
	if err != nil || lease.Key != (lockkeeper.Key{Session: "k3v9", Epoch: 5}) {
		t.Fatal(lease, err)
	}
	for _, want := range []int{2, 0} {
		if got := <-notified; got != want {
			t.Errorf("notified of %d, want %d", got, want)
		}
	}
	close(next)
	if got := <-notified; got != 0 {
		t.Errorf("notified of %d when the connection ended", got)
	}
}

// A hint whose handle was bound to another session meanwhile counts as missed: no session receives
// it, and all sessions renew.
func TestHintWithFormerHandleIsMissed(t *testing.T) {
	notified := make(chan []lockkeeper.Status, 10)
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		for epoch := uint64(1); ; epoch++ {
			f, err := request(in)
			if err != nil {
				return
			}
			m := f.GetRequests()[0]
			reply := &wire.Reply{Call: m.GetCall(), Lease: &wire.Lease{Epoch: epoch, Ttl: int64(time.Minute)}}
			wire.WriteFrame(nc, &wire.ServerFrame{Replies: []*wire.Reply{reply}})
			if m.GetRenew() {
				wire.WriteFrame(nc, &wire.ServerFrame{Changed: []*wire.Status{
					{Handle: m.GetHandle() + wire.NewHandle(0, 1), Id: 7}, {Handle: m.GetHandle(), Id: 8},
				}})
			}
		}
	})
	e := dial(t, address)
	defer e.Close()
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "k3v9", TTL: time.Minute}, func(s []lockkeeper.Status) {
		notified <- slices.Clone(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Renew(t.Context(), lease.Key); err != nil {
		t.Fatal(err)
	}
	if all := <-notified; len(all) != 1 || all[0].Ref != (lockkeeper.Ref{Session: "k3v9", ID: 8}) {
		t.Errorf("notified of %v, want claim 8", all)
	}
	if all := <-notified; len(all) != 0 {
		t.Errorf("notified of %v, want missed hints", all)
	}
}

// If the connection fails during a wait, the client finds its grant long before its next ordinary
// renewal.
func TestGrantAfterBrokenConnection(t *testing.T) {
	shared := memlock.New()
	first, one := serve(t, shared)
	_, two := serve(t, shared)
	e := dial(t, one+","+two)
	defer e.Close()
	waiter := lockkeeper.New(e, lockkeeper.SessionTTL(time.Hour))
	defer waiter.Close()
	holder := lockkeeper.New(shared)
	hold, err := holder.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := waiter.Enqueue(t.Context(), lockkeeper.Exclusive("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := waiting.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got.Release(t.Context())
}

// An answer without a result is unavailable, never a grant.
func TestAnswerWithoutResultIsUnavailable(t *testing.T) {
	var answer wire.Reply
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		for {
			f, err := request(in)
			if err != nil {
				return
			}
			answer.Call = f.GetRequests()[0].GetCall()
			wire.WriteFrame(nc, &wire.ServerFrame{Replies: []*wire.Reply{{Call: 99}, &answer, &answer}})
		}
	})
	e := dial(t, address)
	defer e.Close()
	key := lockkeeper.Key{Session: "k3v9", Epoch: 1}
	if _, err := e.Claim(t.Context(), key, lockkeeper.Want{ID: 1,
		Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}}); !errors.Is(err,
		lockkeeper.ErrUnavailable) {
		t.Errorf("a claim without an answer: %v", err)
	}
	if _, err := e.Renew(t.Context(), key); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a renewal without an answer: %v", err)
	}
	answer.Error = &wire.Error{Code: wire.Code_CODE_NOT_HELD, Detail: "so it is"}
	if err := e.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release,
		ID: 1}); !errors.Is(err, lockkeeper.ErrNotHeld) {
		t.Errorf("an error arrives as %v", err)
	}
}

func TestClosedEngineRefusesCalls(t *testing.T) {
	_, address := serve(t, memlock.New())
	e := dial(t, address)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := e.Renew(t.Context(), lockkeeper.Key{}); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	for _, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestEpochIsOfTheLatestConnection: after an answer of a restarted server, the client reports the
// epoch of that server, not the one before.
func TestEpochIsOfTheLatestConnection(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) { // each connection stands for another run
		if err := welcomed(nc, in); err == nil {
			_, _ = request(in)
		}
		nc.Close()
	})
	e, err := remote.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before := e.Guarantees().Epoch
	remote.Break(e)
	if _, err := e.About(t.Context()); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Fatalf("got %v of a server that hung up", err)
	}
	if after := e.Guarantees().Epoch; before == "" || after == "" || before == after {
		t.Errorf("epoch %q, then %q; want that of each run", before, after)
	}
}
