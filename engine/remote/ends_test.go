package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// use makes calls with ctx until the connection watches it.
func (p *puppet) use(ctx context.Context) {
	p.t.Helper()
	for range usualCalls {
		number, end := p.start(ctx)
		p.send(answerTo(number))
		if err := <-end; err != nil {
			p.t.Fatal(err)
		}
	}
}

// watches returns how many contexts the connection watches, and how many open calls rely on that.
func (p *puppet) watches() (contexts, calls int) {
	c := p.engine.conn
	c.Lock()
	defer c.Unlock()
	for _, w := range c.ends {
		if w.watch != nil {
			contexts, calls = contexts+1, calls+w.watch.calls
		}
	}
	return contexts, calls
}

// All open calls with a context that the connection watches end with it, and no other call. Their late
// answers do nothing.
func TestWatchedContextEndsItsCalls(t *testing.T) {
	for name, of := range map[string]func(shared context.Context) context.Context{
		"caller": func(shared context.Context) context.Context { return shared },
		"caller of a Client": func(shared context.Context) context.Context {
			return roundtrip.New(shared, context.Background(), time.Now().Add(time.Hour), nil)
		},
		"client": func(shared context.Context) context.Context {
			return roundtrip.New(context.Background(), shared, time.Now().Add(time.Hour), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPuppet(t)
				defer p.close()
				shared, stop := context.WithCancel(t.Context())
				p.use(of(shared))
				first, firstEnd := p.start(of(shared))
				other, otherEnd := p.start(t.Context())
				second, secondEnd := p.start(of(shared))
				if contexts, calls := p.watches(); contexts != 1 || calls != 2 {
					t.Errorf("%d contexts are watched for %d calls, want 1 for 2", contexts, calls)
				}
				stop()
				for _, end := range []chan error{firstEnd, secondEnd} {
					if err := <-end; !errors.Is(err, context.Canceled) || !errors.Is(err, lockkeeper.ErrUnavailable) {
						t.Errorf("a call whose context has ended gets %v", err)
					}
				}
				synctest.Wait()
				if contexts, _ := p.watches(); contexts != 0 || len(otherEnd) != 0 {
					t.Errorf("%d contexts are watched; %d calls of another context have ended", contexts, len(otherEnd))
				}
				p.send(answerTo(first, second, other))
				if err := <-otherEnd; err != nil {
					t.Errorf("the call with another context: %v", err)
				}
			})
		})
	}
}

// A call with a context that has ended gives up, also if the connection watched that context.
func TestEndedContextIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		shared, stop := context.WithCancel(t.Context())
		p.use(shared)
		stop()
		for range 2 * usualCalls {
			_, end := p.start(shared)
			if err := <-end; !errors.Is(err, context.Canceled) {
				t.Fatalf("it gets %v", err)
			}
		}
	})
}

// A call that relies on a watch goes on for the grace of its caller.
func TestWatchedContextLeavesGrace(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPuppet(t)
			defer p.close()
			shared, stop := context.WithCancel(t.Context())
			p.use(shared)
			ctx := roundtrip.New(shared, context.Background(), time.Now().Add(time.Hour), roundtrip.NewGrace(time.Second))
			number, end := p.start(ctx)
			if _, calls := p.watches(); calls != 1 {
				t.Errorf("%d calls rely on the watch, want 1", calls)
			}
			stop()
			began := time.Now()
			if answered {
				time.Sleep(time.Second / 2)
				p.send(answerTo(number))
			}
			switch err := <-end; {
			case answered && err != nil:
				t.Errorf("answered in the grace: %v", err)
			case !answered && (!errors.Is(err, context.Canceled) || time.Since(began) != time.Second):
				t.Errorf("not answered: after %v it gets %v", time.Since(began), err)
			}
		})
	}
}

// Another context that calls usually have replaces a watched one, but not while a call relies on it.
func TestUsualContextReplacesWatchedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		defer p.close()
		former, stopFormer := context.WithCancel(t.Context())
		later, stopLater := context.WithCancel(t.Context())
		defer stopFormer()
		p.use(former)
		number, end := p.start(former)
		p.use(later)
		if _, calls := p.watches(); calls != 1 {
			t.Errorf("%d calls rely on the former watch, want 1", calls)
		}
		p.send(answerTo(number))
		if err := <-end; err != nil {
			t.Error(err)
		}
		p.use(later)
		_, end = p.start(later)
		stopLater()
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Errorf("the call with the later context gets %v", err)
		}
	})
}
