package remote_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// noticed is a context whose deadline is noticed late, as on an overloaded computer.
type noticed struct {
	context.Context
	until time.Time
}

func (c noticed) Deadline() (time.Time, bool) { return c.until, true }

// A call with a very short deadline does not end the connection, however late the client notices
// the deadline: other calls go on.
func TestShortDeadlineDoesNotEndConnection(t *testing.T) {
	asked := make(chan struct{}, 10)
	gaveUp := make(chan struct{})
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		var first uint64
		for range 2 {
			f, err := request(in)
			if err != nil {
				return
			}
			if first == 0 {
				first = f.GetRequests()[0].GetCall()
			}
			asked <- struct{}{}
		}
		<-gaveUp
		wire.WriteFrame(nc,
			&wire.ServerFrame{Replies: []*wire.Reply{{Call: first, Lease: &wire.Lease{Epoch: 5, Ttl: int64(time.Minute)}}}})
	})
	e := dial(t, address)
	defer e.Close()
	key := lockkeeper.Key{Session: "k3v9", Epoch: 5}
	renewed := make(chan error, 1)
	go func() {
		_, err := e.Renew(t.Context(), key)
		renewed <- err
	}()
	<-asked
	end, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ctx := noticed{end, time.Now().Add(5 * time.Millisecond)}
	if err := e.End(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Release,
		ID: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call of 5 ms: %v", err)
	}
	close(gaveUp)
	if err := <-renewed; err != nil {
		t.Errorf("the renewal beside it: %v", err)
	}
}

// Hints of a failed connection are delivered before the next connection is used: they are older, and
// perhaps from another server.
func TestHintsOfFormerConnectionComeFirst(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		for {
			f, err := request(in)
			if err != nil {
				return
			}
			id := f.GetRequests()[0].GetCall()
			wire.WriteFrame(nc,
				&wire.ServerFrame{Replies: []*wire.Reply{{Call: id, Lease: &wire.Lease{Epoch: 5, Ttl: int64(time.Minute)}}}})
			wire.WriteFrame(nc, &wire.ServerFrame{Changed: []*wire.Status{{Session: "k3v9", Id: 1}}})
		}
	})
	e := dial(t, address)
	defer e.Close()
	arrived, goOn := make(chan struct{}, 10), make(chan struct{})
	notify := func(all []lockkeeper.Status) {
		if len(all) > 0 {
			arrived <- struct{}{}
			<-goOn // hold up the delivery
		}
	}
	if _, err := e.Attach(t.Context(), lockkeeper.Session{ID: "k3v9", TTL: time.Minute}, notify); err != nil {
		t.Fatal(err)
	}
	<-arrived
	remote.Break(e.(*remote.Engine))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := e.Renew(ctx, lockkeeper.Key{Session: "k3v9", Epoch: 5}); err == nil {
		t.Error("the next connection is in use before a hint of the former one is delivered")
	}
	close(goOn)
	if _, err := e.Renew(t.Context(), lockkeeper.Key{Session: "k3v9", Epoch: 5}); err != nil {
		t.Error(err)
	}
}

// A lease in several pieces arrives as one. If the connection fails between them, the outcome is
// unknown.
func TestPiecesOfLeaseMakeOne(t *testing.T) {
	for _, broken := range []bool{false, true} {
		address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
			if welcomed(nc, in) != nil {
				return
			}
			f, err := request(in)
			if err != nil {
				return
			}
			for id := range uint64(3) {
				lease := &wire.Lease{
					Epoch:  5,
					Ttl:    int64(time.Minute),
					Claims: []*wire.Status{{Id: id + 1, State: wire.State(lockkeeper.Held)}},
				}
				wire.WriteFrame(nc, &wire.ServerFrame{Replies: []*wire.Reply{{Call: f.GetRequests()[0].GetCall(),
					Lease: lease,
					More:  id < 2,
				}}})
				if broken && id == 1 {
					nc.Close()
					return
				}
			}
		})
		e := dial(t, address)
		lease, err := e.Renew(t.Context(), lockkeeper.Key{Session: "k3v9", Epoch: 5})
		switch {
		case broken && (!errors.Is(err, lockkeeper.ErrUnavailable) || len(lease.Claims) > 0):
			t.Errorf("a lease that breaks off: %v %v", lease, err)
		case !broken && (err != nil || len(lease.Claims) != 3 || lease.Claims[0].Ref.ID != 1 || lease.Claims[2].Ref.ID != 3):
			t.Errorf("a lease in pieces: %v %v", lease, err)
		}
		e.Close()
	}
}

// A call ends with its context even if the server reads nothing, and however many bytes earlier
// calls have sent to it.
func TestCallEndsThoughServerReadsNothing(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) { _ = welcomed(nc, in) })
	e := dial(t, address)
	defer e.Close()
	large := lockkeeper.Session{ID: "many", TTL: time.Minute, Named: make([]uint64, 80_000)}
	for i := range large.Named {
		large.Named[i] = 1<<63 + uint64(i) // ten bytes each
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := e.Attach(ctx, large, nil)
			ended <- err
		}()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("a call that was given up ends with %v", err)
		}
	}
}

// A request that is larger than a frame is refused here, and the connection goes on: later requests
// still name their session, whose handle the refused one would have bound.
func TestTooLargeRequestIsRefused(t *testing.T) {
	_, address := serve(t, memlock.New())
	e := dial(t, address)
	defer e.Close()
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "k3v9", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	release := lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}
	tooLarge := release
	tooLarge.Note = strings.Repeat("n", wire.MaxFrame)
	for range 3 {
		if err := e.End(t.Context(), lease.Key, tooLarge); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("too large: %v", err)
		}
		if err := e.End(t.Context(), lease.Key, release); !errors.Is(err, lockkeeper.ErrNotHeld) {
			t.Errorf("after it: %v", err)
		}
	}
	if _, err := e.Attach(t.Context(), lockkeeper.Session{ID: "many", TTL: time.Minute,
		Named: make([]uint64, wire.MaxFrame)}, nil); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("an attach that is too large: %v", err)
	}
	if _, err := e.Renew(t.Context(), lease.Key); err != nil {
		t.Error(err)
	}
}
