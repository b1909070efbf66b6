package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/grab"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// silentEngine fails the first lists: count without Follow, and follow with it.
type silentEngine struct {
	lockkeeper.Engine
	count, follow int // lists that still fail
}

func (e *silentEngine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	left := &e.count
	if q.Follow {
		left = &e.follow
	}
	if *left--; *left < 0 {
		return e.Engine.List(ctx, q)
	}
	return func(yield func(lockkeeper.Status, error) bool) {
		yield(lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable})
	}
}

// While the engine can't list its claims, a drain does not take it for empty, does not give up, and
// pauses between its attempts.
func TestDrainOfASilentEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		defer memory.Close()
		lease, err := memory.Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if _, err := memory.Claim(t.Context(), lease.Key, want); err != nil {
			t.Fatal(err)
		}
		e := &silentEngine{memory, 3, 3}
		g := access.New(e, nil, access.Options{})
		g.Drain("")
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- awaitEmpty(t.Context(), g, e, nil, slog.New(slog.DiscardHandler)) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if len(ended) > 0 || e.count != -4 || e.follow != -1 {
			t.Errorf("ended: %d, with %d and %d lists left; want it to follow", len(ended), e.count, e.follow)
		}
		if err := memory.End(t.Context(), lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || time.Since(began) != 30*time.Second {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := awaitEmpty(ctx, g, &silentEngine{memory, 1, 0}, nil,
			slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
			t.Errorf("of a context that is over: %v", err)
		}
	})
}

// removedEngine is that of a node that was removed from its cluster.
type removedEngine struct{ lockkeeper.Engine }

func (removedEngine) List(context.Context, lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		yield(lockkeeper.Status{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: quorumlock.ErrRemoved})
	}
}

func TestDrainOfARemovedNodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := removedEngine{memlock.New()}
		defer e.Close()
		g := access.New(e, nil, access.Options{})
		g.Drain("")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := awaitEmpty(ctx, g, e, g.Refreshed, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
}

// On a shared engine a drain waits only for clients connected to this server, and not for a client
// that has moved to another one.
func TestDrainOfASharedEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memlock.New()
		defer memory.Close()
		for _, id := range []string{"here", "elsewhere"} {
			lease, err := memory.Attach(t.Context(), lockkeeper.Session{ID: id, TTL: time.Hour}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := lockkeeper.Want{ID: 1,
				Targets: []lockkeeper.Target{{Path: lockkeeper.Path(id), Mode: lockkeeper.ModeExclusive}}}
			if _, err := memory.Claim(t.Context(), lease.Key, want); err != nil {
				t.Fatal(err)
			}
		}
		g := access.New(memory, nil, access.Options{})
		g.Drain("")
		var moved atomic.Bool
		ended := make(chan error, 1)
		go func() {
			serves := func(session string) bool { return session == "here" && !moved.Load() }
			ended <- awaitEmpty(t.Context(), g, memory, serves, slog.New(slog.DiscardHandler))
		}()
		time.Sleep(10 * time.Second)
		if len(ended) > 0 {
			t.Error("it does not wait for one who has a connection here")
		}
		moved.Store(true)
		time.Sleep(2 * emptyRetry)
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("it waits for those whom others serve")
		}
	})
}

// TestDrainWaitsForNamesRefreshedHere: on a shared engine a drain waits for names, which
// have no connection, until a TTL after their last refresh at this server. It does not wait
// for names that are refreshed at other servers.
func TestDrainWaitsForNamesRefreshedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlock.New()
		defer shared.Close()
		grabs := func(e lockkeeper.Engine, path lockkeeper.Path) {
			t.Helper()
			target := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
			a, err := grab.New(e).Grab(t.Context(), grab.Request{As: "me", Targets: []lockkeeper.Target{target}})
			if err != nil || a.State != lockkeeper.Held {
				t.Fatalf("%s, %v", a.State, err)
			}
		}
		name := func(path lockkeeper.Path) grab.Name { return grab.Name{As: "me", Paths: []lockkeeper.Path{path}} }
		for ending, lasts := range map[string]time.Duration{"expires": 100 * time.Second, "is released": 50 * time.Second} {
			g := access.New(shared, nil, access.Options{})
			here := admitted(t, g)
			grabs(here, "here")
			grabs(shared, "elsewhere")
			g.Drain("")
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- awaitEmpty(t.Context(), g, shared, g.Refreshed, slog.New(slog.DiscardHandler)) }()
			time.Sleep(40 * time.Second)
			grabs(here, "here")
			time.Sleep(10 * time.Second)
			if ending == "is released" {
				if _, err := grab.New(here).Release(t.Context(), name("here")); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err != nil || time.Since(began).Truncate(2*emptyRetry) != lasts {
				t.Errorf("%s: it ended after %s, %v; want %s", ending, time.Since(began), err, lasts)
			}
			if _, err := grab.New(shared).Release(t.Context(), name("elsewhere")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// admitted is the engine that a gate gives to its clients.
func admitted(t *testing.T, g *access.Gate) lockkeeper.Engine {
	t.Helper()
	pass, err := g.Admit(access.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	return pass.Engine()
}
