package load

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A quantile is off by 1/64 at most.
func TestHistogramQuantilesAreWithinTheirBound(t *testing.T) {
	random := testmode.Rand(t)
	var l, other Histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(math.Exp(random.Float64() * 30)) // 1 ns to some hours
		all = append(all, d)
		if to := &l; random.IntN(2) == 0 {
			to.Add(d)
		} else {
			other.Add(d)
		}
	}
	l.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		got := l.Quantile(q)
		if off := math.Abs(float64(got - want)); off > float64(want)/64 {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
	if l.max != all[len(all)-1] || l.n != uint64(len(all)) {
		t.Errorf("%d, at most %s; want %d, %s", l.n, l.max, len(all), all[len(all)-1])
	}
	if (&Histogram{}).Quantile(0.5) != 0 || len((&Histogram{}).BySteps()) != 0 {
		t.Error("nothing has a quantile or a step")
	}
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 1 << 40, math.MaxInt64} {
		if middle := middleOf(bucketOf(d)); math.Abs(float64(middle-d)) > float64(d)/64 {
			t.Errorf("the bucket of %d has its middle at %d", d, middle)
		}
	}
	(&Histogram{}).Add(-time.Second) // a clock that goes back is no reason to crash
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		pairs []int64
		want  float64
	}{{[]int64{5, 5, 5, 5}, 1}, {[]int64{20, 0, 0, 0}, 0.25}, {[]int64{0, 0}, 0}, {[]int64{1, 3}, 0.8}} {
		if got := (&Result{Pairs: c.pairs}).Fairness(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.pairs, got, c.want)
		}
	}
}

// However a load ends, its result has what was measured until then, and nothing of the warm-up.
func TestRunMeasuresTheWindow(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		interrupt, fail time.Duration
		stuck           bool
		elapsed         time.Duration
		pairs           int64 // of each of two workers
		err             error
	}{
		"to the end":  {elapsed: 900 * time.Millisecond, pairs: 90},
		"interrupted": {interrupt: 305 * time.Millisecond, elapsed: 205 * time.Millisecond, pairs: 20, err: context.Canceled},
		"in warm-up":  {interrupt: 5 * time.Millisecond, err: context.Canceled},
		"failing":     {fail: 505 * time.Millisecond, elapsed: 405 * time.Millisecond, pairs: 40, err: broken},
		"stuck":       {stuck: true, elapsed: 900 * time.Millisecond, err: ErrStuck},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.interrupt > 0 {
					defer time.AfterFunc(c.interrupt, cancel).Stop()
				}
				edges := 0
				l := New(2)
				l.Warm, l.Span, l.Grace = 101*time.Millisecond, 900*time.Millisecond, time.Second
				l.Edge = func() error { edges++; return nil }
				l.Work = func(w *Worker) error {
					var fail <-chan time.Time
					if c.fail > 0 && w.Number == 1 {
						fail = time.After(c.fail + time.Millisecond)
					}
					if c.stuck {
						<-w.Bound().Done()
						return w.Bound().Err()
					}
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for !w.Over() {
						select {
						case <-tick.C:
							w.Took(time.Millisecond)
							w.Done(1)
						case <-fail:
							return broken
						case <-w.Bound().Done():
							return w.Bound().Err()
						}
					}
					return nil
				}
				if c.interrupt > 0 {
					c.elapsed = max(c.elapsed-time.Millisecond, 0)
				}
				r, err := l.Run(ctx)
				if !errors.Is(err, c.err) || r.Elapsed != c.elapsed || r.Total() != 2*c.pairs ||
					r.Took.Count() != uint64(2*c.pairs) {
					t.Errorf("%v: %d pairs in %s, %d timed; want %v: %d in %s", err, r.Total(), r.Elapsed, r.Took.Count(), c.err,
						2*c.pairs, c.elapsed)
				}
				if c.err == nil && edges != 2 {
					t.Errorf("%d edges", edges)
				}
			})
		})
	}
}

// exclusive is a Locker over a channel; a broken one excludes nobody.
type exclusive struct {
	lock   chan struct{}
	broken bool
}

func (e *exclusive) Acquire(ctx context.Context, _ string) error {
	if e.broken {
		return nil
	}
	select {
	case e.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *exclusive) Release(context.Context, string) error {
	if !e.broken {
		<-e.lock
	}
	return nil
}

// A worker that takes the path back from itself hands nothing off.
func TestOwnPathIsNoHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewContended("a", time.Millisecond)
		l := New(1)
		l.Span, l.Grace = 100*time.Millisecond, time.Second
		l.Work = func(w *Worker) error { return c.Turns(w, &exclusive{lock: make(chan struct{}, 1)}) }
		r, err := l.Run(t.Context())
		if err != nil || r.Took.Count() != 0 || r.Total() < 90 {
			t.Errorf("%d hand-offs, %d pairs, %v", r.Took.Count(), r.Total(), err)
		}
	})
}

// Hand-offs of a contended path are recorded, and two holders at once are an error.
func TestContendedPath(t *testing.T) {
	for _, lax := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := NewContended("a", time.Millisecond)
			l := New(4)
			l.Span, l.Grace = 100*time.Millisecond, time.Second
			locker := &exclusive{lock: make(chan struct{}, 1), broken: lax}
			l.Work = func(w *Worker) error { return c.Turns(w, locker) }
			r, err := l.Run(t.Context())
			switch {
			case lax && err == nil:
				t.Error("two holders at once were not seen")
			case !lax && (err != nil || r.Took.Count() < 90 || r.Total() < 90):
				t.Errorf("%d hand-offs, %d pairs, %v", r.Took.Count(), r.Total(), err)
			}
		})
	}
}
