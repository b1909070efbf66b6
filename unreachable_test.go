package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// boundedBy has the ways to bound a wait.
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

// A bounded wait begins although the engine can't be reached yet, even if its bound exceeds the
// TTL.
func TestBoundedWaitBeginsAtAnUnreachableEngine(t *testing.T) {
	for name, lock := range boundedBy {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.loseRequest = cut
				time.AfterFunc(2*ttl, func() { f.with(func() { f.loseRequest = nil }) })
				must(t)(lock(c, 3*ttl))
			})
		})
	}
}

// The bound counts from the call, so the time that it took to reach the engine is part of it.
func TestWaitBoundCountsFromTheCall(t *testing.T) {
	for name, lock := range boundedBy {
		if name == "a place in line" {
			continue // it is the engine's to end
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				const bound, up = 8 * time.Second, 5 * time.Second
				f.wait, f.loseRequest = true, cut
				time.AfterFunc(up, func() { f.with(func() { f.loseRequest = nil }) })
				f.loseAnswer = first("claim 1")
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

// If the engine stays unreachable, a bounded wait ends at its bound with ErrUnavailable, because
// the lock may be free or taken.
func TestBoundedWaitAtAnEngineThatStaysUnreachable(t *testing.T) {
	for name, lock := range boundedBy {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.loseRequest = cut
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

var errOutage = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.QuorumLost}

// A hold that can't be renewed ends for the latest cause that the engine stated. A renewal that runs out of time
// states none.
func TestLossForTheLatestCause(t *testing.T) {
	silence := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.DeadlineExceeded}
	full := &lockkeeper.Error{
		Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.Unreachable, Cause: context.DeadlineExceeded,
	}
	for _, c := range []struct {
		last error
		want lockkeeper.Reason
	}{{silence, lockkeeper.QuorumLost}, {full, lockkeeper.Unreachable}} {
		bubble(t, func(t *tester, f *fake, client *client) {
			h := must(t)(client.Lock(background, "a"))
			f.with(func() {
				f.loseRequest = func(_ context.Context, call string, n int) error {
					if call == "renew" && n == 1 {
						return errOutage
					}
					return c.last
				}
			})
			<-h.Done()
			wantErr(t, h.Err(), lockkeeper.ErrLost, c.want)
		})
	}
}

// A bounded wait ends at its bound in an outage that lasts, though a client asks an engine that says nothing
// for longer.
func TestBoundedWaitEndsAtItsBoundInAnOutage(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.loseRequest = swallow
				start := time.Now()
				_, err := c.Lock(background, "a", lockkeeper.WithWait(wait))
				wantErr(t, err, lockkeeper.ErrUnavailable)
				if took := time.Since(start); took < min(5*time.Second, ttl) {
					t.Errorf("without a known outage it gave up after %s", took)
				}
				f.with(func() { f.outage = errOutage })
				start = time.Now()
				_, err = c.Lock(background, "a", lockkeeper.WithWait(wait))
				wantErr(t, err, lockkeeper.ErrUnavailable, lockkeeper.QuorumLost)
				if took := time.Since(start); took != wait {
					t.Errorf("gave up after %s, want %s", took, wait)
				}
			})
		})
	}
}

// A wait without a bound outlasts an outage.
func TestWaitWithoutABoundOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseRequest, f.outage = swallow, errOutage
		time.AfterFunc(ttl/2, func() { f.with(func() { f.loseRequest, f.outage = nil, nil }) })
		must(t)(c.Lock(background, "a"))
	})
}
