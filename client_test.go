package lockkeeper_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

type (
	tester = testing.T
	client = lockkeeper.Client
)

var background = context.Background()

func TestGrantAsContextEndsIsReleased(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		ctx, cancel := context.WithCancel(background)
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "claim 1" {
				cancel() // the answer is a grant, and arrives all the same
			}
			return nil
		}
		h, err := c.Lock(ctx, "a")
		if h != nil {
			t.Error("got a hold although the context had ended")
		}
		wantErr(t, err, lockkeeper.ErrNotAcquired, context.Canceled)
		synctest.Wait()
		if f.state(1) != lockkeeper.Ended || f.count("release 1") != 1 {
			t.Errorf("the grant was not given back: %s", f.log())
		}
	})
}

func TestGrantAndCancelAtOneMoment(t *testing.T) {
	for _, order := range []string{"grant first", "cancel first"} {
		bubble(t, func(t *tester, f *fake, c *client) {
			f.wait = true
			ctx, cancel := context.WithCancel(background)
			done := began(func() (*lockkeeper.Hold, error) { return c.Lock(ctx, "a") })
			synctest.Wait()
			if order == "grant first" {
				f.grant(1, false)
				cancel()
			} else {
				cancel()
				f.grant(1, false)
			}
			out := <-done
			synctest.Wait()
			if held := f.state(1) == lockkeeper.Held; held != (out.hold != nil) || held == (out.err != nil) {
				t.Errorf("%s: held at the engine %v, hold %v, error %v", order, held, out.hold != nil, out.err)
			}
		})
	}
}

func TestCancelledIsNeverGrantedLater(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		f.loseAnswer = func(_ context.Context, call string, n int) error {
			if call == "release 1" && n <= 2 {
				return errCut
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "a")
		wantErr(t, err, lockkeeper.ErrNotAcquired, context.DeadlineExceeded, lockkeeper.TimedOut)
		if w := f.wants[1][0].Wait; w <= 0 || w > 5*time.Second {
			t.Errorf("the engine was told a wait of %s, want what the context leaves", w)
		}
		if got := f.count("release 1"); got != 3 {
			t.Errorf("released %d times, want until it was acknowledged: 3; %s", got, f.log())
		}
		f.notify([]lockkeeper.Status{{
			Ref:    lockkeeper.Ref{Session: f.key.Session, ID: 1},
			Change: 99,
			State:  lockkeeper.Held,
		}})
		time.Sleep(10 * time.Second)
		if got := f.count("release 1"); got != 4 {
			t.Errorf("released %d times, want once more after it was said to be held: 4; %s", got, f.log())
		}
		if f.state(1) != lockkeeper.Ended {
			t.Error("the claim outlived its cancellation")
		}
	})
}

func TestLostNotificationIsFoundByRenewal(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "a") })
		synctest.Wait()
		f.grant(1, true)
		start := time.Now()
		out := <-done
		must(t)(out.hold, out.err)
		if took := time.Since(start); took > ttl/3 {
			t.Errorf("found after %s, want within a third of the TTL", took)
		}
	})
}

func TestLostAnswersAreRepeatedUnderTheSameID(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseAnswer = first("claim 1")
		h := must(t)(c.Lock(background, "a"))
		if got := f.log(); got != "attach, claim 1, claim 1" {
			t.Errorf("calls: %s", got)
		}
		if w := f.wants[1]; !reflect.DeepEqual(w[0], w[1]) {
			t.Errorf("the repetition asked for something else: %v", w)
		}
		f.loseAnswer = first("release 1")
		if err := h.Release(background); err != nil {
			t.Errorf("release: %v", err)
		}
		if got := f.count("release 1"); got != 2 {
			t.Errorf("released %d times, want 2", got)
		}
	})
}

func TestUnknownOutcomeIsNeverTakenAndNeverLeaks(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "claim 1" {
				return errCut
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "a") // granted, but the answer never arrives
		wantErr(t, err, lockkeeper.ErrUnavailable, context.DeadlineExceeded, errCut)
		if f.state(1) != lockkeeper.Held {
			t.Fatalf("the engine has it as %v, the test wants it held", f.state(1))
		}
		var before int
		f.with(func() { f.loseRequest, f.loseAnswer, before = nil, nil, f.countLocked("claim 1") })
		time.Sleep(5 * time.Second)
		if f.state(1) != lockkeeper.Ended {
			t.Errorf("the grant leaked: %s", f.log())
		}
		if log := f.log(); f.count("claim 1") != before+1 || !strings.HasSuffix(log, "claim 1, release 1") {
			t.Errorf("it may be ended only once it was answered: %s", log)
		}
	})
}

func TestTryOnAnUnreachableEngineGivesUp(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseRequest = swallow
		start := time.Now()
		_, err := c.TryLock(background, "a")
		wantErr(t, err, lockkeeper.ErrUnavailable)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("gave up after %s", took)
		}
	})
}

func TestEndsOfAWait(t *testing.T) {
	for _, end := range []struct {
		why  lockkeeper.Reason
		want []error
	}{
		{lockkeeper.TimedOut, []error{lockkeeper.ErrNotAcquired, lockkeeper.TimedOut}},
		{lockkeeper.Deadlock, []error{lockkeeper.ErrDeadlock, lockkeeper.ErrNotAcquired}},
		{lockkeeper.Revoked, []error{lockkeeper.ErrNotAcquired, lockkeeper.Revoked}},
		{lockkeeper.Quota, []error{lockkeeper.ErrNotAcquired, lockkeeper.Quota}},
		{lockkeeper.EngineRestarted, []error{lockkeeper.ErrUnavailable, lockkeeper.EngineRestarted}},
	} {
		bubble(t, func(t *tester, f *fake, c *client) {
			f.wait = true
			done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "/a/b/") })
			synctest.Wait()
			f.news(1, true, func(st *lockkeeper.Status) { st.Blockers = []lockkeeper.Blocker{{Path: "a"}} })
			f.news(1, false, func(st *lockkeeper.Status) {
				st.Text = "the words to it"
				f.endLocked(1, end.why)
			})
			out := <-done
			wantErr(t, out.err, end.want...)
			var e *lockkeeper.Error
			if !errors.As(out.err, &e) || e.Op != "lock" || e.Path != "a/b" || e.Detail != "the words to it" {
				t.Errorf("evidence is missing: %#v", out.err)
			}
			if e.Err == lockkeeper.ErrNotAcquired && len(e.Blocked) != 1 {
				t.Errorf("who stood in the way is missing: %v", e)
			}
			if strings.Count(out.err.Error(), "a/b") != 1 {
				t.Errorf("the path is told more than once: %v", out.err)
			}
		})
	}
}

func TestWaitBoundHoldsWithoutNews(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		start := time.Now()
		go func() {
			synctest.Wait()
			f.news(1, true, func(st *lockkeeper.Status) {
				st.Blockers = []lockkeeper.Blocker{{Ref: lockkeeper.Ref{Session: "other", ID: 7}}}
			})
		}()
		_, err := c.Lock(background, "a", lockkeeper.WithWait(2*time.Second))
		wantErr(t, err, lockkeeper.ErrNotAcquired, lockkeeper.TimedOut)
		if blocked := err.(*lockkeeper.Error).Blocked; len(blocked) != 1 || blocked[0].Ref.ID != 7 {
			t.Errorf("it is in the way of %v, want other.7, as the engine knows", blocked)
		}
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("gave up after %s", took)
		}
		synctest.Wait()
		if f.state(1) != lockkeeper.Ended {
			t.Error("it still waits at the engine")
		}
	})
}

// If the bound of a wait passes while the engine can't be reached, the outcome is unknown: the call
// returns ErrUnavailable soon.
func TestWaitBoundAtAnUnreachableEngine(t *testing.T) {
	for name, lost := range map[string]func(context.Context, string, int) error{"cut": cut, "swallowed": swallow} {
		for _, verb := range []string{"lock", "wait"} {
			t.Run(verb+" "+name, func(t *testing.T) {
				bubble(t, func(t *tester, f *fake, c *client) {
					f.wait = true
					start := time.Now()
					pending, err := c.Enqueue(background, lockkeeper.Exclusive("b"), lockkeeper.WithWait(2*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						synctest.Wait()
						f.with(func() { f.loseRequest = lost })
					}()
					if verb == "lock" {
						_, err = c.Lock(background, "a", lockkeeper.WithWait(2*time.Second))
					} else {
						_, err = pending.Wait(background)
					}
					wantErr(t, err, lockkeeper.ErrUnavailable)
					if errors.Is(err, lockkeeper.ErrNotAcquired) {
						t.Errorf("it is said to be taken: %v", err)
					}
					if took := time.Since(start); took > 4*time.Second {
						t.Errorf("gave up after %s", took)
					}
					f.with(func() { f.loseRequest = nil })
				})
			})
		}
	}
}

func TestReleaseTwice(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		ctx := h.Context()
		if err := h.Release(background); err != nil {
			t.Fatal(err)
		}
		wantErr(t, context.Cause(ctx), lockkeeper.ErrNotHeld, lockkeeper.Released)
		wantErr(t, h.Release(background), lockkeeper.ErrNotHeld)
		wantErr(t, h.Err(), lockkeeper.ErrNotHeld)
		if err := h.Close(); err != nil {
			t.Errorf("Close after an ordinary release: %v", err)
		}
		if f.count("release 1") != 1 {
			t.Errorf("the second release reached the engine: %s", f.log())
		}
	})
}

func TestReleaseUnderAnEndedContext(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		ctx, cancel := context.WithCancel(background)
		cancel()
		wantErr(t, h.Release(ctx), lockkeeper.ErrUnavailable, context.Canceled)
		wantErr(t, h.Err(), lockkeeper.ErrNotHeld)
		synctest.Wait()
		if f.state(1) != lockkeeper.Ended {
			t.Error("it is still held at the engine")
		}
	})
}

func TestContextBoundsTheWaitOnly(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(background, key{}, "kept"))
		h := must(t)(c.Lock(ctx, "a"))
		cancel()
		if err := h.Context().Err(); err != nil || h.Err() != nil {
			t.Errorf("the hold ended with the context of the wait: %v, %v", err, h.Err())
		}
		if h.Context().Value(key{}) != "kept" {
			t.Error("the values of the context are gone")
		}
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		own := errors.New("own")
		if err := c.Do(background, "a", func(context.Context) error { return own }); err != own {
			t.Errorf("got %v, want the function's error", err)
		}
		err := c.Do(background, "a", func(ctx context.Context) error {
			f.news(2, false, func(*lockkeeper.Status) { f.endLocked(2, lockkeeper.Revoked) })
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), lockkeeper.ErrLost, lockkeeper.Revoked)
			return nil
		})
		wantErr(t, err, lockkeeper.ErrLost, lockkeeper.Revoked)

		ctx, cancel := context.WithCancel(background)
		err = c.Do(ctx, "a", func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
		wantErr(t, err, context.Canceled)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic got lost")
				}
			}()
			c.Do(background, "a", func(context.Context) error { panic("boom") })
		}()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Do(background, "a", func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-ended
		synctest.Wait()
		for id := uint64(1); id <= 5; id++ {
			if f.state(id) != lockkeeper.Ended {
				t.Errorf("claim %d of Do is still held", id)
			}
		}
	})
}

func TestClientClose(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		ctx := h.Context()
		f.with(func() { f.wait = true })
		waiting := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "a") })
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantErr(t, context.Cause(ctx), lockkeeper.ErrNotHeld, lockkeeper.Released)
		wantErr(t, (<-waiting).err, lockkeeper.ErrNotAcquired, lockkeeper.Cancelled)
		if !strings.HasSuffix(f.log(), "leave, close") {
			t.Errorf("the session was not left, or the engine not closed: %s", f.log())
		}
		_, err := c.Lock(background, "a")
		wantErr(t, err, lockkeeper.ErrInvalid)
		wantErr(t, c.Thaw(background, "a", lockkeeper.Label{}), lockkeeper.ErrInvalid)
		for _, err := range c.List(background, lockkeeper.Query{}) {
			wantErr(t, err, lockkeeper.ErrInvalid)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestCloseWhileAttachIsInFlight(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		gate := make(chan struct{})
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "attach" {
				<-gate
			}
			return nil
		}
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "a") })
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(gate)
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if out := <-done; out.err == nil {
			t.Error("a closed client gave out a hold")
		}
		if got := f.log(); got != "attach, leave, close" {
			t.Errorf("calls: %s, want the session left", got)
		}
	})
}

func TestInvalidRequestsNeverReachTheEngine(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		_, err := c.Acquire(background, lockkeeper.Exclusive(".."), lockkeeper.Shared("a\nb"))
		wantErr(t, err, lockkeeper.ErrInvalid)
		for _, word := range []string{"..", "U+000A"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not told in %v", word, err)
			}
		}
		_, err = c.Acquire(background)
		wantErr(t, err, lockkeeper.ErrInvalid)
		_, err = c.Lock(background, "a", lockkeeper.WithWait(-1))
		wantErr(t, err, lockkeeper.ErrInvalid)
		wantErr(t, c.Freeze(background, "a", 0, lockkeeper.Label{}), lockkeeper.ErrInvalid)
		wantErr(t, c.Thaw(background, "a", lockkeeper.Label{Note: "\n"}), lockkeeper.ErrInvalid)
		if f.log() != "" {
			t.Errorf("the engine was asked: %s", f.log())
		}
	})
	bubble(t, func(t *tester, f *fake, c *client) {
		_, err := c.Lock(background, "a")
		wantErr(t, err, lockkeeper.ErrInvalid)
		if f.log() != "" {
			t.Errorf("the engine was asked: %s", f.log())
		}
	}, lockkeeper.SessionTTL(time.Millisecond))
}

func TestPending(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		p, err := c.Enqueue(background, lockkeeper.Exclusive("a"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err = p.Wait(ctx)
		wantErr(t, err, lockkeeper.ErrNotAcquired, context.DeadlineExceeded)
		if f.state(1) != lockkeeper.Waiting {
			t.Error("the place in line is lost")
		}
		f.grant(1, false)
		h := must(t)(p.Wait(background))
		if again := must(t)(p.Wait(background)); again != h {
			t.Error("a second Wait gave another hold")
		}
		wantErr(t, p.Cancel(), lockkeeper.ErrInvalid)
		if h.Err() != nil {
			t.Error("Cancel ended a hold that was given out")
		}

		q, _ := c.Enqueue(background, lockkeeper.Exclusive("b"))
		f.grant(2, false) // nobody has seen it yet
		if err := q.Cancel(); err != nil {
			t.Errorf("Cancel: %v", err)
		}
		if f.state(2) != lockkeeper.Ended {
			t.Error("the grant was not given back")
		}
		_, err = q.Wait(background)
		wantErr(t, err, lockkeeper.ErrNotAcquired, lockkeeper.Cancelled)
	})
}
