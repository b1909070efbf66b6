package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The loads of lk bench, as --json names them.
const (
	loadDistinct = "distinct"
	loadOne      = "one"
	loadHandOff  = "hand-off"
)

// inLine is how many take turns where hand-offs are measured: one holds, and the
// others wait.
const inLine = 3

// benchGrace is how long after its time a load may take to finish what it began.
// Then it is given up: somebody else holds what it waits for, or the engine hangs.
const benchGrace = 2 * time.Second

// outcome is what came of one load.
type outcome struct {
	load    string
	clients int
	elapsed time.Duration // without the warm-up
	pairs   []uint64      // of each client: locks and releases, or hand-offs to it
	took    latencies     // from asking to having; of hand-offs, from the release to the next one's having
}

func (o *outcome) total() (n uint64) {
	for _, pairs := range o.pairs {
		n += pairs
	}
	return n
}

func (o *outcome) perSecond() float64 {
	if o.elapsed <= 0 {
		return 0
	}
	return float64(o.total()) / o.elapsed.Seconds()
}

// fairness is Jain's index of the clients' shares: 1 if all are equal, 1/n if one
// of n had everything; 0 of nothing.
func (o *outcome) fairness() float64 {
	var sum, squares float64
	for _, pairs := range o.pairs {
		sum += float64(pairs)
		squares += float64(pairs) * float64(pairs)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(o.pairs)) * squares)
}

// window is the time in which a load counts what was finished: what comes before
// it is the warm-up.
type window struct {
	from, to time.Time
	over     chan struct{} // closed when it is over
}

// tally is what one client counts. Its counter may be read meanwhile.
type tally struct {
	*window
	pairs atomic.Uint64
	took  latencies
}

// count counts what took so long and was finished at that moment.
func (t *tally) count(took time.Duration, finished time.Time) {
	if finished.Before(t.from) || finished.After(t.to) {
		return
	}
	t.pairs.Add(1)
	t.took.add(took)
}

// workload is a load before it has run. Its work is called once for each client,
// in a goroutine of its own, and returns soon after the window is over.
type workload struct {
	load    string
	clients int
	work    func(ctx context.Context, i int, t *tally) error
}

// mostWarmUp is the longest warm-up of a load: less if it runs for less than 10 s.
const mostWarmUp = time.Second

// measure runs a load for that span, of which the first tenth is its warm-up. The
// outcome has what there is if ctx ends sooner, or if the load fails: that is the
// error. watch is told of the tallies before it begins.
func (l workload) measure(ctx context.Context, span time.Duration, watch func([]*tally)) (*outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	w := &window{begun.Add(min(span/10, mostWarmUp)), begun.Add(span), make(chan struct{})}
	defer time.AfterFunc(span, func() { close(w.over) }).Stop()
	defer time.AfterFunc(span+benchGrace, cancel).Stop()
	tallies := make([]*tally, l.clients)
	for i := range tallies {
		tallies[i] = &tally{window: w}
	}
	watch(tallies)
	failed := make(chan error, 1)
	var working sync.WaitGroup
	for i, t := range tallies {
		working.Go(func() {
			if err := l.work(ctx, i, t); err != nil && ctx.Err() == nil {
				select {
				case failed <- err:
				default: // one is enough to tell
				}
				cancel()
			}
		})
	}
	working.Wait()
	out := &outcome{load: l.load, clients: l.clients, elapsed: w.to.Sub(w.from)}
	if now := time.Now(); now.Before(w.to) {
		out.elapsed = now.Sub(w.from)
	}
	for _, t := range tallies {
		out.pairs = append(out.pairs, t.pairs.Load())
		out.took.merge(&t.took)
	}
	select {
	case err := <-failed:
		return out, err
	default:
		return out, nil
	}
}

// takeTurns is the work of a client that locks and releases a path again and again.
func takeTurns(ctx context.Context, client *lockkeeper.Client, path string, t *tally) error {
	for asked := time.Now(); asked.Before(t.to); {
		hold, err := client.Lock(ctx, path)
		if err != nil {
			return err
		}
		took := time.Since(asked)
		if err := hold.Close(); err != nil {
			return err
		}
		asked = time.Now()
		t.count(took, asked)
	}
	return nil
}
