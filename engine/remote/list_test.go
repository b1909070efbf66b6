package remote_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// many holds n paths at e for one session.
func many(t *testing.T, e lockkeeper.Engine, session string, n int) lockkeeper.Key {
	t.Helper()
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: session, TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(n) {
		target := lockkeeper.Target{Path: lockkeeper.Path(fmt.Sprintf("path/%d", id)), Mode: lockkeeper.ModeExclusive}
		if s, err := e.Claim(t.Context(), lease.Key, lockkeeper.Want{ID: id + 1,
			Targets: []lockkeeper.Target{target}}); err != nil || s.State != lockkeeper.Held {
			t.Fatal(s, err)
		}
	}
	return lease.Key
}

// A list arrives completely, however long it is and however slowly its reader is. Meanwhile the
// connection serves other calls. A list that its reader leaves ends.
func TestLongListsAreComplete(t *testing.T) {
	shared := memlock.New()
	_, address := serve(t, shared)
	many(t, shared, "many", 3000)
	e := dial(t, address)
	defer e.Close()
	n := 0
	for _, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 500 || n == 2500 { // in the middle of the list, other calls are served
			if _, err := e.Renew(t.Context(), lockkeeper.Key{Session: "nobody"}); !errors.Is(err, lockkeeper.ErrSession) {
				t.Fatal(err)
			}
		}
	}
	if n != 3000 {
		t.Errorf("%d of 3000 arrived", n)
	}
	for range 200 { // more than a connection may have at a time: each one ends when its reader leaves it
		for _, err := range e.List(t.Context(), lockkeeper.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}

// A follower sees changes until its context ends, and an error if the server ends.
func TestFollowerSeesChanges(t *testing.T) {
	shared := memlock.New()
	s, address := serve(t, shared)
	key := many(t, shared, "one", 1)
	e := dial(t, address)
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan lockkeeper.State, 10)
	ended := make(chan error, 2)
	follow := func(ctx context.Context) {
		var last error
		for st, err := range e.List(ctx, lockkeeper.Query{Follow: true}) {
			if last = err; err == nil {
				states <- st.State
			}
		}
		ended <- last
	}
	go follow(ctx)
	if got := <-states; got != lockkeeper.Held {
		t.Fatal(got)
	}
	if err := shared.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	if got := <-states; got != lockkeeper.Ended {
		t.Fatal(got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after the end of its context: %v", err)
	}
	many(t, shared, "two", 2)
	go follow(t.Context())
	<-states
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("after the end of the server: %v", err)
	}
}

// A server that sends more of a list than its credit fills no memory: the list ends.
func TestListBeyondCreditEnds(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		asked, err := request(in)
		if err != nil {
			return
		}
		more := &wire.Reply{Call: asked.GetRequests()[0].GetCall(), More: true, Status: &wire.Status{Session: "x", Id: 1}}
		wire.WriteFrame(nc, &wire.ServerFrame{Replies: []*wire.Reply{more}})
		for { // the next request is the Renew below: flood the list before its answer
			f, err := request(in)
			if err != nil {
				return
			}
			if len(f.GetRequests()) > 0 {
				flood := &wire.ServerFrame{}
				for range 10_000 {
					flood.Replies = append(flood.Replies, more)
				}
				wire.WriteFrame(nc, flood)
				wire.WriteFrame(nc,
					&wire.ServerFrame{Replies: []*wire.Reply{{Call: f.GetRequests()[0].GetCall(),
						Error: &wire.Error{Code: wire.Code_CODE_SESSION}}}})
			}
		}
	})
	e := dial(t, address)
	defer e.Close()
	var last error
	n := 0
	for _, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if n++; n == 1 {
			if _, err := e.Renew(t.Context(), lockkeeper.Key{Session: "nobody"}); !errors.Is(err, lockkeeper.ErrSession) {
				t.Fatal(err)
			}
		}
		last = err
	}
	if !errors.Is(last, lockkeeper.ErrUnavailable) || n > 300 {
		t.Errorf("%d statuses, then %v", n, last)
	}
}
