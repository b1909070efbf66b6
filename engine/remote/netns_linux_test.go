package remote_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// The TTLs of the far client. The near one's never ends.
const (
	cableTTL = 2 * time.Second  // for tests that wait until it is over
	longTTL  = 20 * time.Second // for the others: even a machine that stands still is in time
)

// cut is a way in which a network dies.
type cut struct {
	name    string
	arrives bool // frames of the client arrive
	do      func(c *badnet.Cable) error
}

var cuts = []cut{
	{"what the server sends is lost", true, func(c *badnet.Cable) error { return c.Lose(true, false) }},
	{"what the client sends is lost", false, func(c *badnet.Cable) error { return c.Lose(false, true) }},
	{"everything is lost", false, func(c *badnet.Cable) error { return c.Lose(true, true) }},
	{"the cable is out", false, (*badnet.Cable).Unplug},
}

// site is a server on another host with two cables, so that one client can be cut off while another
// one observes the server.
type site struct {
	*testing.T
	cut       cut
	bad       *badnet.Cable
	far, near *lockkeeper.Client // over the bad cable, and over the good one
}

// newSite makes a site. The test must run in network namespaces of its own (badnet.Alone).
func newSite(t *testing.T, c cut, ttl time.Duration) *site {
	t.Helper()
	host, err := badnet.NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	bad, err := host.Cable()
	if err != nil {
		t.Fatal(err)
	}
	good, err := host.Cable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := host.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	e := memlock.New()
	s := server.New(e, server.Options{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
		e.Close()
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	client := func(over *badnet.Cable, name string, ttl time.Duration) *lockkeeper.Client {
		k := lockkeeper.New(dial(t, net.JoinHostPort(over.There, port)), lockkeeper.SessionTTL(ttl),
			lockkeeper.SessionID(name))
		t.Cleanup(func() { k.Close() })
		return k
	}
	return &site{t, c, bad, client(bad, "far", ttl), client(good, "near", time.Hour)}
}

// die makes the bad cable fail, and plug repairs it.
func (s *site) die()  { s.Helper(); s.ok(s.cut.do(s.bad)) }
func (s *site) plug() { s.Helper(); s.ok(s.bad.Plug()) }

func (s *site) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) lock(c *lockkeeper.Client, path string, more ...lockkeeper.Request) *lockkeeper.Hold {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	h, err := c.Lock(ctx, path, more...)
	s.ok(err)
	return h
}

// listed returns the far client's claims at the server, once want is true of them.
func (s *site) listed(what string, want func([]lockkeeper.Status) bool) []lockkeeper.Status {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for {
		var all []lockkeeper.Status
		for st, err := range s.near.List(ctx, lockkeeper.Query{Session: "far"}) {
			if err != nil {
				s.Fatalf("%s: %v", what, err)
			}
			all = append(all, st)
		}
		if want(all) {
			return all
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			s.Fatalf("not within %s: %s; the server has %+v", patience, what, all)
		}
	}
}

// result is the result of a Lock in another goroutine.
type result struct {
	hold *lockkeeper.Hold
	err  error
}

func (s *site) locking(ctx context.Context, c *lockkeeper.Client, path string,
	more ...lockkeeper.Request) <-chan result {
	done := make(chan result, 1)
	go func() {
		h, err := c.Lock(ctx, path, more...)
		done <- result{h, err}
	}()
	return done
}

func (s *site) await(done <-chan result) result {
	s.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(patience):
		s.Fatalf("no answer in %s", patience)
		return result{}
	}
}

// everyCut runs a test for each way in which the network dies.
func everyCut(t *testing.T, ttl time.Duration, test func(s *site)) {
	if !badnet.Alone(t) {
		return
	}
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting for TTLs
			s := newSite(t, c, ttl)
			test(s)
		})
	}
}

// A holder that is cut off learns of its loss before another claim is granted.
func TestCutOffHolderKnowsFirst(t *testing.T) {
	everyCut(t, cableTTL, func(s *site) {
		held := s.lock(s.far, "db")
		lost := held.Done()
		next := s.locking(s.Context(), s.near, "db")
		s.die()
		got := s.await(next)
		s.ok(got.err)
		// A process that stood still until now knows it at the first look, and gives that as the reason.
		if err := held.Err(); !errors.Is(err, lockkeeper.ErrLost) || !errors.Is(err, lockkeeper.Unreachable) &&
			!errors.Is(err, lockkeeper.Suspended) {
			s.Errorf("the holder's error is %v, want %v, %v", err, lockkeeper.ErrLost, lockkeeper.Unreachable)
		}
		select {
		case <-lost:
		default:
			s.Errorf("granted while the holder's context lives")
		}
		if got.hold.Unconfirmed() || got.hold.Fence() <= held.Fence() {
			s.Errorf("granted with fence %d after %d, unconfirmed %t", got.hold.Fence(), held.Fence(), got.hold.Unconfirmed())
		}
		s.plug()
		s.ok(got.hold.Release(s.Context()))
		s.ok(s.lock(s.far, "db").Release(s.Context()))
	})
}

// A repeated claim whose first answer was lost gets the same grant.
func TestLostAnswerIsTheSameGrant(t *testing.T) {
	everyCut(t, longTTL, func(s *site) {
		s.ok(s.lock(s.far, "before").Release(s.Context())) // so that it is attached
		s.die()
		asked := s.locking(s.Context(), s.far, "db")
		// If the claim arrives, it is granted before the network works again.
		var granted uint64
		if s.cut.arrives {
			granted = s.listed("the claim is granted, and its answer lost", func(all []lockkeeper.Status) bool {
				return len(all) == 1 &&
					all[0].State == lockkeeper.Held
			})[0].Fence
		}
		s.plug()
		got := s.await(asked)
		s.ok(got.err)
		if granted != 0 && got.hold.Fence() != granted {
			s.Errorf("granted with fence %d, and with fence %d when repeated", granted, got.hold.Fence())
		}
		all := s.listed("one claim is held", func(all []lockkeeper.Status) bool { return len(all) == 1 })
		if all[0].State != lockkeeper.Held || all[0].Fence != got.hold.Fence() {
			s.Errorf("the server has %+v, the client fence %d", all[0], got.hold.Fence())
		}
		s.ok(got.hold.Release(s.Context()))
		s.listed("nothing is left", func(all []lockkeeper.Status) bool { return len(all) == 0 })
	})
}

// A caller gives up its wait just when the claim is granted and the network loses the grant. Once
// the network works again, nothing stays held.
func TestGivenUpWaitLeavesNothingHeld(t *testing.T) {
	everyCut(t, longTTL, func(s *site) {
		held := s.lock(s.near, "db")
		ctx, giveUp := context.WithCancel(s.Context())
		defer giveUp()
		waiting := s.locking(ctx, s.far, "db")
		s.listed("it waits", func(all []lockkeeper.Status) bool {
			return len(all) == 1 &&
				all[0].State == lockkeeper.Waiting
		})
		s.die()
		s.ok(held.Release(s.Context()))
		s.listed("it is granted", func(all []lockkeeper.Status) bool {
			return len(all) == 1 &&
				all[0].State == lockkeeper.Held
		})
		giveUp()
		r := s.await(waiting)
		s.plug()
		switch {
		case r.err == nil: // a hint arrived before the cancellation
			s.ok(r.hold.Release(s.Context()))
		case !errors.Is(r.err, context.Canceled):
			s.Errorf("given up: %v", r.err)
		}
		s.ok(s.lock(s.near, "db").Release(s.Context()))
		s.listed("nothing is left", func(all []lockkeeper.Status) bool { return len(all) == 0 })
	})
}

// A path that another claim holds and a server out of reach have different errors, even if the
// network fails during a wait.
func TestTakenIsNotUnreachable(t *testing.T) {
	everyCut(t, cableTTL, func(s *site) {
		only := func(what string, err, want, never error) {
			s.Helper()
			if !errors.Is(err, want) || errors.Is(err, never) {
				s.Errorf("%s: %v; want %v, and not %v", what, err, want, never)
			}
		}
		s.lock(s.near, "db")
		// A session of a machine that stands still may end during a call, but not during each of five.
		reached := func(wait time.Duration) (err error) {
			for range 5 {
				_, err = s.far.Lock(s.Context(), "db", lockkeeper.WithWait(wait))
				if !errors.Is(err, lockkeeper.ErrUnavailable) {
					break
				}
			}
			return err
		}
		only("a try of what is taken", reached(0), lockkeeper.ErrNotAcquired, lockkeeper.ErrUnavailable)
		only("a wait that ends", reached(50*time.Millisecond), lockkeeper.ErrNotAcquired, lockkeeper.ErrUnavailable)
		waits := []<-chan result{s.locking(s.Context(), s.far, "db"),
			s.locking(s.Context(), s.far, "db", lockkeeper.WithWait(time.Minute))}
		s.listed("they wait", func(all []lockkeeper.Status) bool { return len(all) == 2 })
		s.die()
		for _, waiting := range waits {
			only("a wait while the network dies", s.await(waiting).err, lockkeeper.ErrUnavailable, lockkeeper.ErrNotAcquired)
		}
		tries := map[string]<-chan result{
			"a try of what is taken and can't be reached": s.locking(s.Context(), s.far, "db", lockkeeper.WithWait(0)),
			"a try of what is free and can't be reached":  s.locking(s.Context(), s.far, "free", lockkeeper.WithWait(0)),
			"a short wait for what can't be reached": s.locking(s.Context(), s.far, "db",
				lockkeeper.WithWait(50*time.Millisecond)),
		}
		for what, trying := range tries {
			only(what, s.await(trying).err, lockkeeper.ErrUnavailable, lockkeeper.ErrNotAcquired)
		}
		s.plug()
		s.listed("nothing is left", func(all []lockkeeper.Status) bool { return len(all) == 0 })
		only("a try of what is taken, on the mended network", reached(0), lockkeeper.ErrNotAcquired,
			lockkeeper.ErrUnavailable)
	})
}
