package roundtrip

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// A context ends with its caller, its life, its deadline or End, whether its Done channel is in use
// or not, and so does a context that is derived from it.
func TestContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(stopCaller, stopLife, end func())
		want error
	}{
		"caller":   {func(stopCaller, _, _ func()) { stopCaller() }, context.Canceled},
		"life":     {func(_, stopLife, _ func()) { stopLife() }, context.Canceled},
		"end":      {func(_, _, end func()) { end() }, context.Canceled},
		"deadline": {func(_, _, _ func()) { time.Sleep(time.Second) }, context.DeadlineExceeded},
	} {
		for _, watched := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, stopCaller := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
					defer stopCaller()
					life, stopLife := context.WithCancel(context.Background())
					defer stopLife()
					ctx := New(caller, life, time.Now().Add(time.Second), nil)
					defer ctx.End()
					var derived context.Context = ctx
					if watched {
						var stop context.CancelFunc
						derived, stop = context.WithCancel(ctx)
						defer stop()
					}
					if ctx.Err() != nil || derived.Err() != nil {
						t.Fatalf("it has ended at once: %v", ctx.Err())
					}
					c.end(stopCaller, stopLife, ctx.End)
					synctest.Wait()
					if err := ctx.Err(); !errors.Is(err, c.want) {
						t.Errorf("it ends with %v, want %v", err, c.want)
					}
					<-derived.Done()
					if err := derived.Err(); !errors.Is(err, c.want) {
						t.Errorf("a derived context ends with %v, want %v", err, c.want)
					}
					if ctx.Value(key{}) != "value" || derived.Value(key{}) != "value" {
						t.Error("the caller's values are lost")
					}
				})
			})
		}
	}
}

// With a grace, a context ends that long after the end of its caller was noticed, and at its own
// deadline or with its life before that. All contexts of one grace end together.
func TestGraceOutlivesCaller(t *testing.T) {
	const bound = time.Second
	for _, watched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			caller, stopCaller := context.WithTimeout(t.Context(), bound)
			defer stopCaller()
			life, stopLife := context.WithCancel(context.Background())
			defer stopLife()
			grace, start := NewGrace(bound), time.Now()
			contexts := []*Context{
				New(caller, life, start.Add(time.Hour), grace),
				New(caller, life, start.Add(time.Hour), grace),
				New(caller, life, start.Add(bound*3/2), grace),
			}
			if watched {
				for _, ctx := range contexts {
					ctx.Done()
				}
			}
			errs := func() (all [3]error) {
				synctest.Wait()
				for i, ctx := range contexts {
					all[i] = ctx.Err()
				}
				return all
			}
			time.Sleep(bound)
			if got := errs(); got != [3]error{} {
				t.Errorf("with their caller they end with %v", got)
			}
			time.Sleep(bound / 2)
			if until, ok := contexts[2].Outlive(); !ok || !until.Equal(start.Add(bound*3/2)) {
				t.Errorf("the last one goes on for %v, %v, past its deadline", until.Sub(start), ok)
			}
			if got := errs(); got != [3]error{2: context.DeadlineExceeded} {
				t.Errorf("in the grace they end with %v", got)
			}
			if until, ok := contexts[0].Outlive(); !ok || !until.Equal(start.Add(2*bound)) {
				t.Errorf("the first one goes on for %v, %v", until.Sub(start), ok)
			}
			time.Sleep(bound / 2)
			if got := errs(); got != [3]error{context.Canceled, context.Canceled, context.DeadlineExceeded} {
				t.Errorf("after the grace they end with %v", got)
			}
			alive := New(caller, life, start.Add(time.Hour), NewGrace(time.Hour))
			if watched {
				alive.Done()
			}
			stopLife()
			if synctest.Wait(); alive.Err() != context.Canceled {
				t.Errorf("after its life it has %v", alive.Err())
			}
			for _, ctx := range append(contexts, alive) {
				ctx.End()
			}
		})
	}
}

// The earlier deadline counts, and a context that nobody watches costs one allocation.
func TestContextIsCheap(t *testing.T) {
	now := time.Now()
	caller, stop := context.WithDeadline(t.Context(), now.Add(time.Minute))
	defer stop()
	if at, _ := New(caller, t.Context(), now.Add(time.Hour), nil).Deadline(); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("the deadline is %v after now", at.Sub(now))
	}
	if at, _ := New(caller, t.Context(), now.Add(time.Second), nil).Deadline(); !at.Equal(now.Add(time.Second)) {
		t.Errorf("the deadline is %v after now", at.Sub(now))
	}
	if n := testing.AllocsPerRun(100, func() {
		ctx := New(caller, t.Context(), now.Add(time.Hour), nil)
		ctx.Ends()
		ctx.End()
	}); n > 1 {
		t.Errorf("%.0f allocations", n)
	}
}
