package calls

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

type job struct {
	Call
	name string
}

func all(*job) Verdict { return Start }

func names(jobs []*job) (s string) {
	for _, j := range jobs {
		s += j.name
	}
	return s
}

func TestWaitingCallIsRemovedWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[*job]()
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error, 1)
		go func() { end <- q.Do(ctx, &job{}, nil) }()
		synctest.Wait()
		cancel()
		if err := <-end; !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("the caller got %v", err)
		}
		if started := q.Take(all); len(started) > 0 {
			t.Error("the call starts after its caller has given up")
		}
		if err := q.Do(ctx, &job{}, nil); !errors.Is(err, context.Canceled) || q.Last() != 1 {
			t.Errorf("a call of a context that has ended got %v, and was added", err)
		}
	})
}

func TestStartedCallIsAnsweredWithinOvertime(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		known bool
	}{{Overtime / 2, true}, {2 * Overtime, false}} {
		synctest.Test(t, func(t *testing.T) {
			q := New[*job]()
			ctx, cancel := context.WithCancel(t.Context())
			end := make(chan error, 1)
			go func() { end <- q.Do(ctx, &job{}, nil) }()
			synctest.Wait()
			started := q.Take(all)
			cancel()
			time.Sleep(c.after)
			started[0].Answer(nil) // never blocks
			if err := <-end; (err == nil) != c.known || err != nil && !errors.Is(err, errUnknown) {
				t.Errorf("answered after %s the caller got %v", c.after, err)
			}
		})
	}
}

func TestTakeKeepsTheOrder(t *testing.T) {
	q := New[*job]()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		q.Add(&job{name: name})
	}
	started := q.Take(func(j *job) Verdict {
		return map[string]Verdict{"a": Start, "b": Skip, "c": Start, "d": Stop}[j.name]
	})
	if got := names(started); got != "ac" {
		t.Errorf("%q start, want a and c: b is skipped, and nobody passes d", got)
	}
	q.Finish(func() {}, started[1:], time.Now())
	if got := names(q.Take(all)); got != "cbde" {
		t.Errorf("%q start, want the retry c first, and then b, d and e", got)
	}
	for range MostAtOnce + 1 {
		q.Add(&job{})
	}
	if n := len(q.Take(all)); n != MostAtOnce {
		t.Errorf("%d start at once, want %d", n, MostAtOnce)
	}
}

func TestWaitTakeIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[*job]()
		var allowed atomic.Bool
		taken := make(chan []*job)
		go func() {
			for {
				started := q.WaitTake(func() func(*job) Verdict {
					return func(*job) Verdict {
						if allowed.Load() {
							return Start
						}
						return Skip
					}
				})
				taken <- started
				if started == nil {
					return
				}
			}
		}()
		q.Add(&job{name: "a"})
		synctest.Wait()
		q.Finish(func() { allowed.Store(true) }, nil, time.Time{})
		first := <-taken
		if names(first) != "a" {
			t.Errorf("%q start, want a", names(first))
		}
		began := time.Now()
		q.Finish(func() { allowed.Store(false) }, first, began.Add(time.Minute))
		synctest.Wait()
		allowed.Store(true) // nobody reads it until the retry is due
		if again := <-taken; names(again) != "a" || time.Since(began) != time.Minute {
			t.Errorf("%q is tried again after %s, want a after a minute", names(again), time.Since(began))
		}
		q.Close()
		if started := <-taken; started != nil {
			t.Errorf("%d calls start after the queue was closed", len(started))
		}
	})
}

// TestRetryThatFallsDueMeanwhileStarts: the time of a retry comes after the policy has read the
// clock, and before WaitTake waits.
func TestRetryThatFallsDueMeanwhileStarts(t *testing.T) {
	q := New[*job]()
	q.Add(&job{name: "a"})
	due := time.Now().Add(50 * time.Millisecond)
	q.Finish(func() {}, q.Take(all), due)
	taken := make(chan []*job, 1)
	go func() {
		taken <- q.WaitTake(func() func(*job) Verdict {
			now := time.Now()
			return func(*job) Verdict {
				if !now.Before(due) {
					return Start
				}
				time.Sleep(time.Until(due) + 50*time.Millisecond)
				return Skip
			}
		})
	}()
	select {
	case started := <-taken:
		if names(started) != "a" {
			t.Errorf("%q start, want a", names(started))
		}
	case <-time.After(10 * time.Second):
		t.Error("the retry never starts")
		q.Close()
	}
}

func TestClosedQueueRefusesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[*job]()
		end := make(chan error, 2)
		for range 2 {
			go func() { end <- q.Do(t.Context(), &job{}, nil) }()
		}
		synctest.Wait()
		started := q.Take(all)
		q.Close()
		q.Finish(func() {}, started, time.Now())
		for range 2 {
			if err := <-end; !errors.Is(err, ErrClosed) {
				t.Errorf("a call that waits or is to be tried again got %v", err)
			}
		}
		if err := q.Do(t.Context(), &job{}, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("a later call got %v", err)
		}
	})
}
