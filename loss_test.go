package lockkeeper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A hold ends at its holder before the engine may grant the next claim, whether the network resets
// connections or swallows packets (H1, R12).
func TestLossAtTheHoldersOwnDeadline(t *testing.T) {
	for _, fault := range []func(context.Context, string, int) error{cut, swallow} {
		bubble(t, func(t *tester, f *fake, c *client) {
			h := must(t)(c.Lock(background, "a"))
			time.Sleep(25 * time.Second) // two renewals and a bit
			f.with(func() { f.loseRequest = fault })
			<-h.Done()
			var left time.Duration
			f.with(func() { left = ttl - time.Since(f.renewed) })
			if left <= 0 || left > lockkeeper.Margin(ttl)+time.Second {
				t.Errorf("told %s before the engine's end, want a margin of about %s", left, lockkeeper.Margin(ttl))
			}
			wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Unreachable)
			wantErr(t, context.Cause(h.Context()), lockkeeper.ErrLost, lockkeeper.Unreachable)
			if h.Remaining() != 0 {
				t.Errorf("%s remain of a lost hold", h.Remaining())
			}
			f.with(func() { f.loseRequest = nil })
			time.Sleep(ttl / 2) // a swallowed renewal may still be out for a third
			wantErr(t, h.Release(background), lockkeeper.ErrLost, lockkeeper.Unreachable)
			if f.state(1) == lockkeeper.Held {
				t.Errorf("what was lost is still held at the engine: %s", f.log())
			}
			must(t)(c.Lock(background, "a"))
		})
	}
}

// The error of a hold that ended because the engine did not answer has the words of the last
// failure, and matches only the loss.
func TestLossSaysWhatFailed(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		first := true
		f.with(func() {
			f.loseRequest = func(context.Context, string, int) error {
				words := "the file was removed"
				if first {
					first, words = false, "something before"
				}
				return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: words, Cause: context.DeadlineExceeded}
			}
		})
		<-h.Done()
		for _, err := range []error{h.Err(), context.Cause(h.Context())} {
			wantErr(t, err, lockkeeper.ErrLost, lockkeeper.Unreachable)
			if !strings.Contains(err.Error(), "the file was removed") || errors.Is(err, lockkeeper.ErrUnavailable) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %q, want a loss, with the last failure in words", err)
			}
		}
	})
}

// The deadline counts from when a renewal was sent, not from its answer.
func TestDeadlineCountsFromSending(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "attach" {
				time.Sleep(7 * time.Second)
			}
			return nil
		}
		start := time.Now()
		h := must(t)(c.Lock(background, "a"))
		if most := ttl - time.Since(start) - ttl/100; h.Remaining() > most {
			t.Errorf("%s remain, want less than %s", h.Remaining(), most)
		}
	})
}

func TestAWaitEndsWithItsSession(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		done := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "a") })
		synctest.Wait()
		f.with(func() { f.loseRequest = cut })
		wantErr(t, (<-done).err, lockkeeper.ErrUnavailable, lockkeeper.Unreachable)
	})
}

// A holder hears of an engine that does not answer any more while a quarter of its TTL is left, also if
// callers that gave up just then left work for the client to do.
func TestWorkLeftByCallersDelaysNoRenewal(t *testing.T) {
	for after := range 20 {
		bubble(t, func(t *tester, f *fake, c *client) {
			h := must(t)(c.Lock(background, "a"))
			f.with(func() { f.wait = true })
			ctx, giveUp := context.WithCancel(background)
			gaveUp := make(chan error, 1)
			go func() {
				_, err := c.Lock(ctx, "b")
				gaveUp <- err
			}()
			time.Sleep(ttl + time.Duration(after)*ttl/60)
			f.with(func() { f.loseRequest = swallow })
			giveUp()
			for h.RenewError() == nil && h.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			if left := h.Remaining(); left < ttl/4 {
				t.Errorf("with %s of %s left the holder hears that no renewal succeeds: %v", left, ttl, h.RenewError())
			}
			wantErr(t, <-gaveUp, lockkeeper.ErrUnavailable)
		})
	}
}

func TestRenewsEveryThirdEarlierOnly(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		must(t)(c.Lock(background, "a"))
		time.Sleep(10 * ttl)
		f.mu.Lock()
		defer f.mu.Unlock()
		var last time.Time
		different := map[time.Duration]bool{}
		for i, call := range f.calls {
			if call != "renew" && call != "attach" {
				continue
			}
			if gap := f.times[i].Sub(last); !last.IsZero() {
				different[gap] = true
				if gap > ttl/3 || gap < ttl/4 {
					t.Errorf("renewed after %s", gap)
				}
			}
			last = f.times[i]
		}
		if len(different) < 10 {
			t.Errorf("%d different pauses: no jitter", len(different))
		}
	})
}

func TestAskedWithEnd(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		yield := h.YieldAsked()
		f.ask(1, 5*time.Second, false)
		synctest.Wait()
		if f.count("renew") != 1 {
			t.Errorf("the engine does not know that the holder was told: %s", f.log())
		}
		select {
		case <-yield:
		default:
			t.Error("the holder was not told")
		}
		if a := h.Asked(); a == nil || a.As != "thief" || a.Left > 5*time.Second {
			t.Errorf("asked: %v", a)
		}
		if left := h.Remaining(); left > 5*time.Second-lockkeeper.Margin(5*time.Second) {
			t.Errorf("%s remain", left)
		}
		start := time.Now()
		<-h.Done()
		if took := time.Since(start); took > 5*time.Second-lockkeeper.Margin(5*time.Second) || took < 4900*time.Millisecond {
			t.Errorf("lost after %s", took)
		}
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Stolen)
		synctest.Wait()
		want := []lockkeeper.Lapse{{ID: 1, Reason: lockkeeper.Stolen, EndsAt: time.Hour + 5*time.Second}}
		if !slices.Equal(f.lapses, want) {
			t.Errorf("the engine is told of %+v, want %+v", f.lapses, want)
		}
	})
}

// R12: the margin covers clocks whose rates differ by 1 %, and 10 ms.
func TestMargin(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0:                10 * time.Millisecond,
		10 * time.Second: 110 * time.Millisecond,
		10 * time.Hour:   6*time.Minute + 10*time.Millisecond,
	} {
		if got := lockkeeper.Margin(d); got != want {
			t.Errorf("the margin of %s is %s, want %s", d, got, want)
		}
	}
}

// Without a TTL nothing is renewed. A holder that is asked to yield still ends its hold in time.
func TestAskedWithEndWithoutTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.g.NoExpiry = true
		start := time.Now()
		c := lockkeeper.New(f, lockkeeper.BootClock(func() time.Duration { return time.Since(start) }))
		defer c.Close()
		h := must(t)(c.Lock(background, "a"))
		time.Sleep(time.Hour)
		if f.count("renew") != 0 || h.Remaining() != lockkeeper.Forever {
			t.Errorf("a session without TTL was renewed: %s", f.log())
		}
		f.ask(1, 5*time.Second, false)
		synctest.Wait()
		if f.count("renew") != 1 {
			t.Errorf("not renewed after the ask: %s", f.log())
		}
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Stolen)
	})
}

// A hint may be arbitrarily late: it may shorten a hold, and never lengthens what an answer stated.
func TestHintsNeverLengthenAHold(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		f.ask(1, 5*time.Second, false)
		synctest.Wait() // the renewal has told the engine that the holder knows
		f.with(func() { f.loseRequest = cut })
		f.news(1, false, func(st *lockkeeper.Status) { st.Asked = nil }) // withdrawn, as a hint has it
		if left := h.Remaining(); left > 5*time.Second {
			t.Errorf("%s remain, because of a hint", left)
		}
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.Stolen)
	})
}

func TestWithdrawnAskLetsTheHolderGoOn(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		late := f.ask(1, 5*time.Second, false)
		synctest.Wait()
		first := h.YieldAsked()
		f.news(1, false, func(st *lockkeeper.Status) { st.Asked = nil })
		synctest.Wait()
		f.with(func() { f.loseRequest = cut })
		f.notify([]lockkeeper.Status{late}) // the older news comes last
		if h.Asked() != nil || h.Remaining() < 5*time.Second {
			t.Errorf("old news counts: asked %v, %s remain", h.Asked(), h.Remaining())
		}
		f.with(func() { f.loseRequest = nil })
		time.Sleep(time.Minute)
		if h.Err() != nil || h.Asked() != nil {
			t.Errorf("err %v, asked %v", h.Err(), h.Asked())
		}
		second := h.YieldAsked()
		if second == first {
			t.Error("the next ask would not be seen")
		}
		f.ask(1, lockkeeper.Forever, false)
		<-second
	})
}

func TestLongestHoldIsCountedLocally(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.wait = true
		done := began(func() (*lockkeeper.Hold, error) {
			return c.Lock(background, "a", lockkeeper.WithMaxHold(20*time.Second, 5*time.Second))
		})
		time.Sleep(time.Minute) // longer than it may be held
		f.with(func() {
			f.loseRequest = func(_ context.Context, call string, _ int) error {
				if call == "renew" {
					return errCut
				}
				return nil
			}
		})
		start := time.Now()
		granted := f.news(1, true, func(*lockkeeper.Status) { f.grantLocked(1) })
		time.Sleep(5 * time.Second)
		f.notify([]lockkeeper.Status{granted}) // late news says "just now"
		out := <-done
		h := must(t)(out.hold, out.err)
		f.with(func() { f.loseRequest = nil })
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Overdue)
		if took := time.Since(start); took > 25*time.Second-lockkeeper.Margin(0) || took < 24*time.Second {
			t.Errorf("lost after %s", took)
		}
	})
}

// The margin covers clocks that drifted since the last answer, so a hold of ten hours is not six
// minutes shorter.
func TestLongestHoldIsCountedFromTheGrant(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		start := time.Now()
		h := must(t)(c.Lock(background, "a", lockkeeper.WithMaxHold(10*time.Hour, 0)))
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Overdue)
		early := 10*time.Hour - time.Since(start)
		if early < lockkeeper.Margin(0) || early > lockkeeper.Margin(lockkeeper.DefaultTTL) {
			t.Errorf("lost %s before its end, want at most what clocks differ by in one TTL", early)
		}
	})
}

// suspended returns a boot clock that a test can set forward, as the sleep of a computer does.
func suspended() (lockkeeper.ClientOption, func(time.Duration)) {
	var asleep atomic.Int64
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) + time.Duration(asleep.Load()) }
	return lockkeeper.BootClock(clock), func(d time.Duration) { asleep.Add(int64(d)) }
}

func TestSuspendedProcessLosesItsHolds(t *testing.T) {
	for _, look := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock, sleep := suspended()
			f := newFake()
			c := lockkeeper.New(f, clock)
			defer c.Close()
			h := must(t)(c.Lock(background, "a"))
			ctx := h.Context()
			time.Sleep(5 * time.Second)
			sleep(time.Hour)
			woken := time.Now()
			if look {
				wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Suspended) // at the very first look
			}
			<-ctx.Done()
			if late := time.Since(woken); late > time.Second {
				t.Errorf("told %s after waking", late)
			}
			wantErr(t, context.Cause(ctx), lockkeeper.ErrLost, lockkeeper.Suspended)
			h = must(t)(c.Lock(background, "a"))
			if h.Ref().ID != 2 {
				t.Errorf("got %s, want a new claim", h.Ref())
			}
		})
	}
}

func TestReattachNamesWantedClaims(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		held := must(t)(c.Lock(background, "a"))
		given := must(t)(c.Lock(background, "b"))
		f.with(func() { f.wait = true })
		waiting := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "c") })
		synctest.Wait()
		gate := make(chan struct{})
		f.with(func() {
			f.loseRequest = func(_ context.Context, call string, n int) error {
				if call == "claim 4" && n == 1 {
					<-gate
				}
				return nil
			}
		})
		flying := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "d") })
		synctest.Wait()
		if err := given.Release(background); err != nil {
			t.Fatal(err)
		}
		f.with(func() { f.key.Epoch += 10 }) // the engine failed over: all must resume
		time.Sleep(ttl / 3)
		synctest.Wait()
		var named []uint64
		f.with(func() { named = f.named })
		if !slices.Equal(named, []uint64{1, 3, 4}) {
			t.Errorf("named %v, want what is held, waits and is in flight", named)
		}
		close(gate)
		synctest.Wait()
		f.grant(3, false)
		f.grant(4, false)
		for _, done := range []<-chan outcome{waiting, flying} {
			out := <-done
			must(t)(out.hold, out.err)
		}
		if held.Err() != nil {
			t.Errorf("the hold was lost: %v", held.Err())
		}
	})
}

// An engine that lost its memory grants to others: the holds are lost at once, not only at their
// deadlines, and waiting claims are sent again.
func TestReattachToAnEngineThatForgot(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		f.with(func() { f.wait = true })
		waiting := began(func() (*lockkeeper.Hold, error) { return c.Lock(background, "b") })
		synctest.Wait()
		f.with(func() { clear(f.claims); f.key.Epoch += 10; f.wait = false })
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.EngineRestarted)
		out := <-waiting
		must(t)(out.hold, out.err)
	})
}

func TestStolenSessionIsNotFoughtOver(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		f.loseAnswer = func(_ context.Context, call string, _ int) error {
			if call == "attach" {
				f.with(func() { f.key.Epoch++ }) // somebody else attaches at once
			}
			return nil
		}
		_, err := c.Lock(background, "a")
		wantErr(t, err, lockkeeper.ErrUnavailable, lockkeeper.ErrSession)
		if n := f.count("attach"); n > 20 {
			t.Errorf("attached %d times", n)
		}
	})
}

// A computer wakes after its deadline and attaches before any timer has fired: its old holds stay
// lost.
func TestAttachRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, sleep := suspended()
		f := newFake()
		c := lockkeeper.New(f, clock)
		defer c.Close()
		h := must(t)(c.Lock(background, "a"))
		f.with(func() {
			f.key.Epoch++ // the next renewal is refused, and attaching fails
			f.loseRequest = func(_ context.Context, call string, _ int) error {
				if call == "attach" {
					return errCut
				}
				return nil
			}
		})
		time.Sleep(ttl / 2)
		f.with(func() { f.loseRequest = nil })
		sleep(time.Hour)
		must(t)(c.Lock(background, "b")) // the engine was kind, and kept the session
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Suspended)
	})
}

// An answer that arrives after a newer status changes nothing.
func TestAnswerOvertakenByAHint(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		gate := make(chan struct{})
		f.with(func() {
			f.loseAnswer = func(_ context.Context, call string, _ int) error {
				if call == "amend 1 exclusive p2" {
					<-gate
				}
				return nil
			}
		})
		amended := make(chan error)
		go func() { amended <- h.Amend(background, lockkeeper.WithPriority(2)) }()
		synctest.Wait()
		f.ask(1, 5*time.Second, false)
		synctest.Wait()
		close(gate)
		if err := <-amended; err != nil {
			t.Fatal(err)
		}
		if h.Remaining() > 5*time.Second || h.Asked() == nil {
			t.Errorf("%s remain, asked %v", h.Remaining(), h.Asked())
		}
	})
}

// An engine that consists of several servers may find no majority for a hold when another part of it
// takes the session over. Then it answers that the claim waits, and may grant the path to others.
func TestHoldThatWaitsAgainIsLost(t *testing.T) {
	bubble(t, func(t *tester, f *fake, c *client) {
		h := must(t)(c.Lock(background, "a"))
		f.news(1, false, func(st *lockkeeper.Status) { st.State, st.Fence = lockkeeper.Waiting, 0 })
		<-h.Done()
		wantErr(t, h.Err(), lockkeeper.ErrLost, lockkeeper.Expired)
		time.Sleep(time.Second)
		if f.state(1) == lockkeeper.Waiting {
			t.Errorf("the claim still waits at the engine: %s", f.log())
		}
	})
}
