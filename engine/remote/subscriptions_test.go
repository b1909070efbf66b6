package remote_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A refused attach changes nothing: the session's owner is notified as before.
func TestRefusedAttachChangesNothing(t *testing.T) {
	shared := memlock.New()
	defer shared.Close()
	_, address := serve(t, shared)
	e := dial(t, address)
	defer e.Close()
	notified := make(chan []lockkeeper.Status, 10)
	s := lockkeeper.Session{ID: "ann", TTL: lockkeeper.DefaultTTL}
	ann, err := e.Attach(t.Context(), s, func(all []lockkeeper.Status) { notified <- all })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Attach(t.Context(), s, func([]lockkeeper.Status) {}); !errors.Is(err, lockkeeper.ErrSession) {
		t.Fatalf("an attach that does not know the epoch: %v", err)
	}
	bob, err := e.Attach(t.Context(), lockkeeper.Session{ID: "bob", TTL: lockkeeper.DefaultTTL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := lockkeeper.Want{
		ID:      1,
		Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
		Wait:    lockkeeper.Forever,
	}
	for _, k := range []lockkeeper.Key{bob.Key, ann.Key} {
		if _, err := e.Claim(t.Context(), k, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.End(t.Context(), bob.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	select {
	case all := <-notified:
		if len(all) != 1 || all[0].State != lockkeeper.Held {
			t.Errorf("notified %v, want the grant", all)
		}
	case <-time.After(patience):
		t.Error("no callback gets the grant")
	}
}

// Sessions that have expired are removed.
func TestEndedSessionsAreRemoved(t *testing.T) {
	address := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		if welcomed(nc, in) != nil {
			return
		}
		for epoch := uint64(1); ; epoch++ {
			f, err := request(in)
			if err != nil {
				return
			}
			// Its sessions end at once.
			wire.WriteFrame(nc,
				&wire.ServerFrame{Replies: []*wire.Reply{{Call: f.GetRequests()[0].GetCall(),
					Lease: &wire.Lease{Epoch: epoch, Ttl: 1}}}})
		}
	})
	e := dial(t, address)
	defer e.Close()
	for i := range 1000 {
		s := lockkeeper.Session{ID: fmt.Sprint("run/", i), TTL: lockkeeper.MinTTL}
		if _, err := e.Attach(t.Context(), s, func([]lockkeeper.Status) {}); err != nil {
			t.Fatal(err)
		}
	}
	if n := remote.Subscriptions(e.(*remote.Engine)); n > 200 {
		t.Errorf("%d of 1000 expired sessions are kept", n)
	}
}
