package remote_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// shared is an engine of several servers, none of which closes it.
type shared struct{ lockkeeper.Engine }

func (shared) Close() error { return nil }

// moved waits until the server has that many clients.
func moved(t *testing.T, s *server.Server, clients int) {
	t.Helper()
	become(t, "clients", clients, s.Connections)
}

// become waits until a number is the one that is wanted.
func become(t *testing.T, what string, want int, number func() int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); number() != want; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: %d, want %d", what, number(), want)
		}
	}
}

// A client with several addresses leaves a server that drains, and keeps its holds. A client with
// only that address stays.
func TestClientLeavesDrainingServer(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	first, one := serve(t, shared{e})
	second, two := serve(t, shared{e})
	several := lockkeeper.New(dial(t, "lk://"+one+","+two))
	defer several.Close()
	alone := lockkeeper.New(dial(t, "lk://"+one))
	defer alone.Close()
	hold, err := several.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := alone.Lock(t.Context(), "site")
	if err != nil {
		t.Fatal(err)
	}
	first.Drain("it moves")
	moved(t, first, 1)
	if h, err := several.TryLock(t.Context(), "new"); err != nil {
		t.Errorf("a new claim: %v", err)
	} else if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	moved(t, second, 1)
	if hold.Err() != nil || kept.Err() != nil {
		t.Errorf("the holds: %v, %v", hold.Err(), kept.Err())
	}
	// When all servers drain, the client stays.
	second.Drain("it moves too")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := several.TryLock(ctx, "new"); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a new claim where all drain: %v", err)
	}
	if err := errors.Join(hold.Release(t.Context()), kept.Release(t.Context())); err != nil {
		t.Error(err)
	}
	moved(t, first, 1)
	moved(t, second, 1)
}

// A client stays at a draining server if no other one answers.
func TestClientStaysIfNoOtherServerAnswers(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	s, one := serve(t, shared{e})
	gone, two := serve(t, shared{e})
	if err := gone.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened, err := remote.Open(t.Context(), "lk://"+one+","+two)
	if err != nil {
		t.Fatal(err)
	}
	c := lockkeeper.New(opened)
	defer c.Close()
	hold, err := c.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	s.Drain("it moves")
	if err := hold.Release(t.Context()); err != nil {
		t.Errorf("released: %v", err)
	}
	moved(t, s, 1)
}

// A client leaves a silent server for another one within the TTL: it does not try the silent one first.
// A slow computer may itself need most of a short TTL.
func TestClientLeavesSilentServer(t *testing.T) {
	for ttl := 2 * time.Second; ; ttl *= 2 {
		err := leaveSilentServer(t, ttl)
		if err == nil {
			return
		}
		if ttl > 10*time.Second {
			t.Fatalf("with a TTL of %s: %v", ttl, err)
		}
	}
}

// leaveSilentServer returns the error of a hold after its server falls silent.
func leaveSilentServer(t *testing.T, ttl time.Duration) error {
	e := memlock.New()
	defer e.Close()
	_, one := serve(t, shared{e})
	second, two := serve(t, shared{e})
	p, err := badnet.New(one, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := lockkeeper.New(dial(t, "lk://"+p.Addr()+","+two), lockkeeper.SessionTTL(ttl))
	defer c.Close()
	hold, err := c.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	p.Set(badnet.Profile{Up: badnet.Direction{Discard: true}, Down: badnet.Direction{Discard: true}})
	moved(t, second, 1)
	// The client renews its session at the second server before the TTL ends.
	h, err := c.TryLock(t.Context(), "site")
	if err == nil {
		err = h.Release(t.Context())
	}
	return errors.Join(err, hold.Err())
}

// A client does not begin at a server that drains, if there is another one: neither if the URL names that, nor if
// only the server that drains does.
func TestClientConnectsPastDrainingServer(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	nodes := startCluster(t, e, "c1", 2, 1)
	first, second := nodes[0].server, nodes[1].server
	early, err := remote.Open(t.Context(), "lk://"+nodes[0].at())
	if err != nil {
		t.Fatal(err)
	}
	become(t, "servers that the first one states", 2, func() int { return remote.Servers(early) })
	if err := early.Close(); err != nil {
		t.Error(err)
	}
	moved(t, first, 0)
	first.Drain("it moves")
	for _, url := range []string{
		"lk://" + nodes[0].at() + "," + nodes[1].at(),
		"lk://" + nodes[0].at(),
	} {
		opened, err := remote.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if second.Connections() != 1 {
			t.Errorf("%s: the second server has %d clients", url, second.Connections())
		}
		for _, err := range opened.List(t.Context(), lockkeeper.Query{}) {
			if err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
		moved(t, first, 0)
		moved(t, second, 0)
	}
}

// At the only server that answers, or if all drain, calls and lists are answered at once.
func TestClientIsServedByDrainingServers(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	first, one := serve(t, shared{e})
	second, two := serve(t, shared{e})
	first.Drain("it moves")
	second.Drain("it moves too")
	for _, url := range []string{"lk://" + one, "lk://" + one + "," + two} {
		opened, err := remote.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			for _, err := range opened.List(t.Context(), lockkeeper.Query{}) {
				if err != nil {
					t.Fatalf("%s: %v", url, err)
				}
			}
		}
		if about, err := opened.About(t.Context()); err != nil || about.Draining == "" {
			t.Errorf("%s: draining %q, error %v", url, about.Draining, err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}
}

// mute is an engine whose lists have no status yet.
type mute struct {
	shared
	asked chan struct{} // filled by each list
}

func (m mute) List(ctx context.Context, _ lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(func(lockkeeper.Status, error) bool) {
		m.asked <- struct{}{}
		<-ctx.Done()
	}
}

// A list that has no status yet goes on at another server, when the client moves there.
func TestListMovesWithItsClient(t *testing.T) {
	for _, follow := range []bool{false, true} {
		e := memlock.New()
		defer e.Close()
		many(t, e, "many", 1)
		m := mute{shared{e}, make(chan struct{}, 1)}
		first, one := serve(t, m)
		_, two := serve(t, shared{e})
		opened, err := remote.Open(t.Context(), "lk://"+one+","+two)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		go func() {
			<-m.asked
			first.Drain("it moves")
		}()
		statuses := 0
		for _, err := range opened.List(t.Context(), lockkeeper.Query{Follow: follow}) {
			if err != nil {
				t.Fatalf("follow %t: %v", follow, err)
			}
			if statuses++; follow {
				break
			}
		}
		if statuses != 1 {
			t.Errorf("follow %t: %d statuses", follow, statuses)
		}
	}
}
