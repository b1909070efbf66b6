package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// What is read from the buckets is what was put in, but for a 64th.
func TestLatencies(t *testing.T) {
	random := testmode.Rand(t)
	var l, other latencies
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(math.Exp(random.Float64() * 30)) // 1 ns to some hours
		all = append(all, d)
		if to := &l; random.IntN(2) == 0 {
			to.add(d)
		} else {
			other.add(d)
		}
	}
	l.merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		got := l.quantile(q)
		if off := math.Abs(float64(got - want)); off > float64(want)/64 {
			t.Errorf("quantile %v is %s, want %s", q, got, want)
		}
	}
	if l.most != all[len(all)-1] || l.n != uint64(len(all)) {
		t.Errorf("%d, at most %s; want %d, %s", l.n, l.most, len(all), all[len(all)-1])
	}
	if (&latencies{}).quantile(0.5) != 0 || len((&latencies{}).bySteps()) != 0 {
		t.Error("nothing has a quantile or a step")
	}
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 1 << 40, math.MaxInt64} {
		if middle := middleOf(bucketOf(d)); math.Abs(float64(middle-d)) > float64(d)/64 {
			t.Errorf("the bucket of %d has its middle at %d", d, middle)
		}
	}
	(&latencies{}).add(-time.Second) // a clock that goes back is no reason to crash
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		pairs []uint64
		want  float64
	}{{[]uint64{5, 5, 5, 5}, 1}, {[]uint64{20, 0, 0, 0}, 0.25}, {[]uint64{0, 0}, 0}, {[]uint64{1, 3}, 0.8}} {
		if got := (&outcome{pairs: c.pairs}).fairness(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.pairs, got, c.want)
		}
	}
}

func TestBriefAndGrouped(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:           "0ns",
		999:         "999ns",
		1000:        "1.00µs",
		71234:       "71.2µs",
		99_960:      "100µs",
		999_600:     "1.00ms",
		9_996_000:   "10.0ms",
		time.Minute: "60.0s",
		time.Hour:   "3600s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	for value, want := range map[float64]string{
		0:       "0.0",
		9.96:    "10.0",
		12.4:    "12",
		999.6:   "1000",
		1000:    "1,000",
		1234567: "1,234,567",
	} {
		if got := grouped(value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
}

// sampled is an outcome that had these latencies in one second.
func sampled(load string, clients int, took map[time.Duration]int) *outcome {
	o := &outcome{load: load, clients: clients, elapsed: time.Second, pairs: make([]uint64, clients)}
	for d, n := range took {
		for i := range n {
			o.took.add(d)
			o.pairs[i%clients]++
		}
	}
	return o
}

func samples() []*outcome {
	return []*outcome{
		sampled(loadHandOff, 3, map[time.Duration]int{
			70 * time.Microsecond:  300,
			130 * time.Microsecond: 100,
			900 * time.Microsecond: 1,
		}),
		sampled(loadDistinct, 1, map[time.Duration]int{
			40 * time.Microsecond: 1000,
			90 * time.Microsecond: 400,
			3 * time.Millisecond:  2,
		}),
		sampled(loadDistinct, 16, map[time.Duration]int{90 * time.Microsecond: 3200, 400 * time.Microsecond: 1600}),
		sampled(loadOne, 2, map[time.Duration]int{800 * time.Microsecond: 3}),
	}
}

// The whole report, as it goes into a pipe.
func TestBenchReport(t *testing.T) {
	var got strings.Builder
	r := benchReport{to: &got, look: look{width: plainWidth}}
	for _, o := range samples() {
		r.add(o)
	}
	r.end()
	if got.String() != wantReport {
		t.Errorf("got\n%s\nwant\n%s", got.String(), wantReport)
	}
}

const wantReport = `
from a release to the next holder
clients    times/s                p50       p90       p99       max
      3        401             70.7µs     130µs     130µs     900µs
   up to  3 clients
   100µs  ############################################################
   200µs  ####################
   500µs
     1ms  .

a path for each client: from asking to having it
clients    pairs/s                p50       p90       p99       max
      1      1,402             40.4µs    89.1µs    89.1µs    3.00ms
     16      4,800             89.1µs     397µs     397µs     400µs
   up to  1 client                            16 clients
    50µs  ##################################
   100µs  ##############                      ##################################
   200µs
   500µs                                      #################
     1ms
     2ms
     5ms  .

one path for all clients: from asking to having it
clients    pairs/s fairness       p50       p90       p99       max
      2        3.0    0.900     795µs     795µs     795µs     800µs
   up to  2 clients
     1ms  ############################################################
`

// A terminal gets as much as it can show, and not more than it is wide.
func TestPicture(t *testing.T) {
	for name, c := range map[string]struct {
		look look
		want string
	}{
		"narrow": {look{width: 30}, `   up to  1 client
    50µs  ####################
   100µs  ########
   200µs
   500µs
     1ms
     2ms
     5ms  .
   up to  16 clients
   100µs  ####################
   200µs
   500µs  ##########
`},
		"blocks": {look{width: 50, blocks: true}, `   up to  1 client             16 clients
    50µs  ███████████████████
   100µs  ███████▋             ███████████████████
   200µs
   500µs                       █████████▌
     1ms
     2ms
     5ms  ▏
`},
		"colored": {look{width: 20, blocks: true, color: true}, strings.ReplaceAll(`   up to  1 client
    50µs  [██████████]
   100µs  [████]
   200µs
   500µs
     1ms
     2ms
     5ms  [▏]
   up to  16 clients
   100µs  [██████████]
   200µs
   500µs  [█████]
`, "[", "\x1b[36m")},
	} {
		var got strings.Builder
		c.look.draw(&got, samples()[1:3])
		if got.String() != strings.ReplaceAll(c.want, "]", "\x1b[0m") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got.String(), c.want)
		}
	}
}

// What is no terminal gets nothing that a terminal alone understands.
func TestLookOfNoTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("LC_ALL", "C.UTF-8")
	if got := lookOf(&strings.Builder{}); got != (look{width: plainWidth}) {
		t.Errorf("got %+v", got)
	}
}

// What is finished before the warm-up is over, or too late, is not counted.
func TestTallyCounts(t *testing.T) {
	now := time.Now()
	c := &tally{window: &window{from: now, to: now.Add(time.Second)}}
	for _, at := range []time.Duration{-1, 0, time.Second, time.Second + 1} {
		c.count(time.Millisecond, now.Add(at))
	}
	if n := c.pairs.Load(); n != 2 || c.took.n != 2 {
		t.Errorf("%d pairs, %d times: want the 2 within the window", n, c.took.n)
	}
}

// Whatever ends a load, its outcome has what there was until then.
func TestMeasure(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		interrupt, fail time.Duration
		stuck           bool
		elapsed         time.Duration
		pairs           int // of each of two clients
		err             error
	}{
		"to the end":  {elapsed: 900 * time.Millisecond, pairs: 91},
		"interrupted": {interrupt: 305 * time.Millisecond, elapsed: 205 * time.Millisecond, pairs: 21},
		"at once":     {interrupt: 5 * time.Millisecond, elapsed: -95 * time.Millisecond},
		"failing":     {fail: 505 * time.Millisecond, elapsed: 405 * time.Millisecond, pairs: 41, err: broken},
		"stuck":       {stuck: true, elapsed: 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.interrupt > 0 {
					defer time.AfterFunc(c.interrupt, cancel).Stop()
				}
				load := workload{"test", 2, func(ctx context.Context, i int, t *tally) error {
					var fail <-chan time.Time
					if c.fail > 0 && i == 1 {
						fail = time.After(c.fail)
					}
					if c.stuck {
						<-ctx.Done()
						return ctx.Err()
					}
					tick := time.NewTicker(10 * time.Millisecond)
					defer tick.Stop()
					for time.Now().Before(t.to) {
						select {
						case <-tick.C:
							t.count(time.Millisecond, time.Now())
						case <-fail:
							return broken
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return nil
				}}
				out, err := load.measure(ctx, time.Second, func([]*tally) {})
				if err != c.err || out.elapsed != c.elapsed || out.total() != uint64(2*c.pairs) {
					t.Errorf("%v: %d pairs in %s; want %v: %d in %s", err, out.total(), out.elapsed, c.err, 2*c.pairs, c.elapsed)
				}
			})
		})
	}
}

// A hand-off is counted only of one who stood in line when it was freed.
func TestRelay(t *testing.T) {
	client := lockkeeper.New(memlock.New())
	defer client.Close()
	r := newRelay("x/line")
	load := workload{loadHandOff, inLine, func(ctx context.Context, _ int, t *tally) error {
		return r.run(ctx, client, t)
	}}
	out, err := load.measure(t.Context(), 100*time.Millisecond, func([]*tally) {})
	if err != nil || out.total() == 0 || out.took.n != out.total() || r.inLine.Load() != 0 {
		t.Errorf("%v: %d hand-offs, %d times, %d still in line", err, out.total(), out.took.n, r.inLine.Load())
	}
}
