package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// boundedBy are the ways to bound a wait.
var boundedBy = map[string]func(c *client, d time.Duration) (*lockkeeper.Hold, error){
	"WithWait": func(c *client, d time.Duration) (*lockkeeper.Hold, error) {
		return c.Lock(background, "a", lockkeeper.WithWait(d))
	},
	"a context": func(c *client, d time.Duration) (*lockkeeper.Hold, error) {
		ctx, cancel := context.WithTimeout(background, d)
		defer cancel()
		return c.Lock(ctx, "a")
	},
	"a place in line": func(c *client, d time.Duration) (*lockkeeper.Hold, error) {
		p, err := c.Enqueue(background, lockkeeper.Exclusive("a"), lockkeeper.WithWait(d))
		if err != nil {
			return nil, err
		}
		return p.Wait(background)
	},
}

// A wait with a bound begins also when the engine can't be reached yet, for longer than a
// session lives too.
func TestBoundedWaitBeginsAtAnUnreachableEngine(t *testing.T) {
	for name, lock := range boundedBy {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.lose = cut
				time.AfterFunc(2*ttl, func() { f.with(func() { f.lose = nil }) })
				must(t)(lock(c, 3*ttl))
			})
		})
	}
}

// The bound counts from the call: of what reaching the engine took, nothing is waited again.
func TestWaitBoundCountsFromTheCall(t *testing.T) {
	for name, lock := range boundedBy {
		if name == "a place in line" {
			continue // it is the engine's to end
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				const bound, up = 8 * time.Second, 5 * time.Second
				f.wait, f.lose = true, cut
				time.AfterFunc(up, func() { f.with(func() { f.lose = nil }) })
				f.deafen = first("claim 1")
				start := time.Now()
				_, err := lock(c, bound)
				wantErr(t, err, lockkeeper.ErrNotAcquired, lockkeeper.TimedOut)
				if took := time.Since(start); took < bound || took > bound+confirmBound {
					t.Errorf("gave up after %s, want %s", took, bound)
				}
				wants := f.wants[1]
				if len(wants) != 2 || wants[0].Wait != wants[1].Wait || wants[0].Wait > bound-up {
					t.Errorf("the engine was asked for %v, want the same wait of at most %s twice", wants, bound-up)
				}
				synctest.Wait()
				if f.state(1) != lockkeeper.Ended {
					t.Error("it still waits at the engine")
				}
			})
		})
	}
}

// At an engine that stays unreachable a bounded wait ends with its bound: nobody knows whether it
// is taken.
func TestBoundedWaitAtAnEngineThatStaysUnreachable(t *testing.T) {
	for name, lock := range boundedBy {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.lose = cut
				start := time.Now()
				_, err := lock(c, 3*ttl)
				wantErr(t, err, lockkeeper.ErrUnavailable, errCut)
				if took := time.Since(start); took != 3*ttl {
					t.Errorf("gave up after %s, want %s", took, 3*ttl)
				}
			})
		})
	}
}
