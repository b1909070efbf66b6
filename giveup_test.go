package lockkeeper_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// slow delays the answers to the calls that begin with that text.
func slow(call string, d time.Duration) func(context.Context, string, int) error {
	return func(ctx context.Context, c string, _ int) error {
		if !strings.HasPrefix(c, call) {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveUps are the ways to give up a claim in line. Each returns the error of the call and the end
// of a context that the error must tell, if it has one.
var giveUps = map[string]func(c *client) (error, error){
	"lock cancelled": func(c *client) (error, error) {
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(time.Minute, cancel)
		_, err := c.Lock(ctx, "a")
		return err, context.Canceled
	},
	"lock past a deadline": func(c *client) (error, error) {
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "a")
		return err, context.DeadlineExceeded
	},
	"do cancelled": func(c *client) (error, error) {
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(time.Minute, cancel)
		return c.Do(ctx, "a", func(context.Context) error { return nil }), context.Canceled
	},
	"pending": func(c *client) (error, error) {
		p, err := c.Enqueue(background, lockkeeper.Exclusive("a"))
		if err != nil {
			return err, nil
		}
		time.Sleep(time.Minute)
		return p.Cancel(), nil
	},
}

// Giving up takes one call, and returns when the engine has confirmed the end.
func TestGivingUpReturnsWhenTheEndIsConfirmed(t *testing.T) {
	for name, giveUp := range giveUps {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.wait = true
				const answer = 600 * time.Millisecond
				f.loseAnswer = slow("release 1", answer)
				go func() {
					synctest.Wait()
					f.news(1, false, func(st *lockkeeper.Status) {
						st.Blockers = []lockkeeper.Blocker{{Ref: lockkeeper.Ref{Session: "other", ID: 7}}}
					})
				}()
				start := time.Now()
				err, ended := giveUp(c)
				if took := time.Since(start) - time.Minute; took < answer || took > confirmBound {
					t.Errorf("returned %s after it was given up, want the engine's answer after %s", took, answer)
				}
				if f.state(1) != lockkeeper.Ended || f.count("release 1") != 1 {
					t.Errorf("the claim is %v at the engine: %s", f.state(1), f.log())
				}
				if name == "pending" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				wantErr(t, err, lockkeeper.ErrNotAcquired, ended)
				var e *lockkeeper.Error
				if errors.As(err, &e); len(e.Blocked) != 1 || e.Blocked[0].Ref.ID != 7 {
					t.Errorf("it is in the way of %v, want other.7, the last known", e.Blocked)
				}
			})
		})
	}
}

// confirmBound bounds the time of giving up at an engine that does not answer.
const confirmBound = time.Second

// Without an answer the outcome is unknown: the call says so after a second, and the client goes on
// ending the claim.
func TestGivingUpAtASilentEngineTakesASecond(t *testing.T) {
	for name, giveUp := range giveUps {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.wait = true
				start := time.Now()
				time.AfterFunc(time.Minute-time.Millisecond, func() { f.with(func() { f.loseRequest = swallow }) })
				err, ended := giveUp(c)
				if took := time.Since(start) - time.Minute; took != confirmBound {
					t.Errorf("returned %s after it was given up, want %s", took, confirmBound)
				}
				wantErr(t, err, lockkeeper.ErrUnavailable)
				if ended != nil {
					wantErr(t, err, ended)
				}
				for _, other := range []error{context.Canceled, context.DeadlineExceeded} {
					if other != ended && errors.Is(err, other) {
						t.Errorf("%v tells of an end that was none of the program's", err)
					}
				}
				f.grant(1, true) // nobody knows of it
				f.with(func() { f.loseRequest = nil })
				time.Sleep(2 * ttl / 3)
				if f.state(1) != lockkeeper.Ended {
					t.Errorf("the grant was not given back: %s", f.log())
				}
			})
		})
	}
}

// A client can end only a claim that was answered, so a request in flight may still be answered
// after its caller gave up.
func TestGivingUpWhileTheFirstRequestIsInFlight(t *testing.T) {
	for name, wait := range map[string]bool{"it waits": true, "it is granted": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *tester, f *fake, c *client) {
				f.wait = wait
				f.loseAnswer = slow("claim 1", 700*time.Millisecond)
				ctx, cancel := context.WithCancel(background)
				time.AfterFunc(100*time.Millisecond, cancel)
				start := time.Now()
				_, err := c.Lock(ctx, "a")
				wantErr(t, err, lockkeeper.ErrNotAcquired, context.Canceled)
				if took := time.Since(start); took != 700*time.Millisecond {
					t.Errorf("returned after %s, want 700ms, when it was answered", took)
				}
				if got := f.log(); got != "attach, claim 1, release 1" || f.state(1) != lockkeeper.Ended {
					t.Errorf("calls: %s; the claim is %v", got, f.state(1))
				}
			})
		})
	}
	t.Run("it is silent", func(t *testing.T) {
		bubble(t, func(t *tester, f *fake, c *client) {
			f.loseAnswer = slow("claim 1", time.Hour)
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			_, err := c.Lock(ctx, "a")
			wantErr(t, err, lockkeeper.ErrUnavailable, context.Canceled)
			if took := time.Since(start); took != 100*time.Millisecond+confirmBound {
				t.Errorf("returned after %s, want a second after it was given up", took)
			}
			f.with(func() { f.loseAnswer = nil })
			time.Sleep(2 * ttl / 3) // the client repeats it at the latest with its next renewal
			if log := f.log(); f.state(1) != lockkeeper.Ended || !strings.Contains(log, "claim 1, release 1") {
				t.Errorf("it is %v at the engine, want it answered and then ended: %s", f.state(1), log)
			}
		})
	})
	t.Run("nothing was sent", func(t *testing.T) {
		bubble(t, func(t *tester, f *fake, c *client) {
			f.loseRequest = cut // not even the session can be attached
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(100*time.Millisecond, cancel)
			start := time.Now()
			_, err := c.Lock(ctx, "a")
			wantErr(t, err, lockkeeper.ErrUnavailable, context.Canceled, errCut)
			if took := time.Since(start); took != 100*time.Millisecond {
				t.Errorf("returned after %s, want at once: there is nothing to end", took)
			}
		})
	})
}

// Each of many callers that give up at once costs the engine one call, as a release does.
func TestManyCancelsCostAsManyCallsAsReleases(t *testing.T) {
	const many = 10_000
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		holder, _ := open("holder")
		c, w := open("waiters")
		h := must(t)(holder.Lock(background, "db"))
		var claims, ends atomic.Int32
		w.set(func() {
			w.before = func(_ context.Context, call string, _ func()) error {
				switch call {
				case "claim db":
					claims.Add(1)
				case "end":
					ends.Add(1)
				}
				return nil
			}
		})
		ctx, cancel := context.WithCancel(background)
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if _, err := c.Lock(ctx, "db"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
					t.Errorf("cancelled: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if claims.Load() != many || ends.Load() != many {
			t.Errorf("%d claims and %d ends for %d cancelled locks, want one of each", claims.Load(), ends.Load(), many)
		}
		if err := h.Release(background); err != nil {
			t.Error(err)
		}
		must(t)(holder.TryLock(background, "db"))
	})
}
