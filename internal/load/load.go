// Package load makes workers lock and release for a fixed time, and measures them.
//
// A [Load] has a warm-up, which is not counted, and a window, which is. When the window ends,
// pending waits are cancelled, and workers that do not end within the grace are given up.
//
//	|-- Warm --|------- Span -------|-- Grace --|
//	           ^ Edge               ^ Edge       ^ Bound ends
//	                                  Waiting ends
package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStuck reports that workers did not end within the grace after the window.
var ErrStuck = errors.New("the workers did not end in time")

// A Load is one measurement. Set its fields, and call Run once.
type Load struct {
	Warm, Span, Grace time.Duration
	// Work is what each worker does, in a goroutine of its own. It returns soon after Worker.Over.
	Work func(*Worker) error
	// Timed makes Worker.Turns record how long each acquire takes.
	Timed bool
	// Edge, if not nil, is called at the beginning and at the end of the window.
	Edge func() error

	workers        []*Worker
	bound, waiting context.Context
	counting, over atomic.Bool
	begun          atomic.Pointer[mark]
}

// New returns a load of so many workers.
func New(workers int) *Load {
	l := &Load{}
	for i := range workers {
		l.workers = append(l.workers, &Worker{Number: i, load: l})
	}
	return l
}

// A Worker is one line of work of a load. Only its goroutine calls its methods.
type Worker struct {
	Number int // from 0

	load  *Load
	pairs atomic.Int64
	took  Histogram
	_     [64]byte // so that workers do not share a cache line
}

// Over reports whether the window has ended.
func (w *Worker) Over() bool { return w.load.over.Load() }

// Bound returns the context that ends when all work must end.
func (w *Worker) Bound() context.Context { return w.load.bound }

// Waiting returns the context that ends with the window.
func (w *Worker) Waiting() context.Context { return w.load.waiting }

// Counting reports whether the window is open.
func (w *Worker) Counting() bool { return w.load.counting.Load() }

// Done counts n pairs of an acquire and a release.
func (w *Worker) Done(n int) { w.pairs.Add(int64(n)) }

// Took records a duration, if the window is open.
func (w *Worker) Took(d time.Duration) {
	if w.Counting() {
		w.took.Add(d)
	}
}

// UnlessOver returns err, or nil if the window has ended: its end cancels waits, which is no
// failure.
func (w *Worker) UnlessOver(err error) error {
	if w.Over() && w.load.waiting.Err() != nil {
		return nil
	}
	return err
}

// mark is the state at the beginning of the window.
type mark struct {
	at    time.Time
	pairs []int64
}

func (l *Load) mark() *mark {
	m := &mark{}
	for _, w := range l.workers {
		m.pairs = append(m.pairs, w.pairs.Load())
	}
	m.at = time.Now()
	return m
}

// since returns the pairs of each worker since the mark.
func (m *mark) since(now *mark) []int64 {
	pairs := make([]int64, len(now.pairs))
	for i := range pairs {
		pairs[i] = now.pairs[i] - m.pairs[i]
	}
	return pairs
}

// PerSecond returns the rate in the window until now. It may be called while Run runs.
func (l *Load) PerSecond() float64 {
	begun := l.begun.Load()
	if begun == nil {
		return 0
	}
	now := l.mark()
	r := Result{Elapsed: now.at.Sub(begun.at), Pairs: begun.since(now)}
	return r.PerSecond()
}

// Run runs the load. On an error (of a worker, of ctx, or [ErrStuck]) the result has the counts
// until then.
func (l *Load) Run(ctx context.Context) (*Result, error) {
	bound, cancel := context.WithCancel(ctx) // without a deadline, by which an engine could refuse a wait
	defer cancel()
	defer time.AfterFunc(l.Warm+l.Span+l.Grace, cancel).Stop()
	waiting, stopWaiting := context.WithCancel(bound)
	defer stopWaiting()
	l.bound, l.waiting = bound, waiting
	failures := make(chan error, len(l.workers))
	var all sync.WaitGroup
	for _, w := range l.workers {
		all.Go(func() {
			if err := l.Work(w); err != nil {
				failures <- err
			}
		})
	}
	r, err := l.window(failures)
	l.over.Store(true)
	stopWaiting()
	if err != nil {
		cancel()
	}
	all.Wait()
	for _, w := range l.workers {
		r.Took.merge(&w.took)
	}
	switch {
	case err != nil:
		return r, err
	case ctx.Err() != nil:
		return r, ctx.Err()
	case bound.Err() != nil:
		return r, ErrStuck
	}
	select {
	case err := <-failures:
		return r, err
	default:
		return r, nil
	}
}

// window waits for the warm-up and for the window, and counts the latter.
func (l *Load) window(failures <-chan error) (*Result, error) {
	r := &Result{Pairs: make([]int64, len(l.workers))}
	if err := l.pause(l.Warm, failures); err != nil {
		return r, err
	}
	if err := l.edge(); err != nil {
		return r, err
	}
	begun := l.mark()
	l.begun.Store(begun)
	l.counting.Store(true)
	err := l.pause(l.Span, failures)
	l.counting.Store(false)
	ended := l.mark()
	r.Elapsed, r.Pairs = ended.at.Sub(begun.at), begun.since(ended)
	if err != nil {
		return r, err
	}
	return r, l.edge()
}

func (l *Load) edge() error {
	if l.Edge == nil {
		return nil
	}
	return l.Edge()
}

// pause waits for d, or for the first failure.
func (l *Load) pause(d time.Duration, failures <-chan error) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case err := <-failures:
		return err
	case <-l.bound.Done():
		return l.bound.Err()
	}
}

// A Result is what the window measured.
type Result struct {
	Elapsed time.Duration
	Pairs   []int64   // of each worker
	Took    Histogram // the durations that Worker.Took recorded
}

// Total returns the pairs of all workers.
func (r *Result) Total() (n int64) {
	for _, pairs := range r.Pairs {
		n += pairs
	}
	return n
}

// PerSecond returns the rate of all workers.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Total()) / r.Elapsed.Seconds()
}

// Fairness returns Jain's index of the shares, (sum x)² / (n * sum x²): 1 if all workers have equal
// shares, 1/n if one of n has everything, 0 without any.
func (r *Result) Fairness() float64 {
	var sum, squares float64
	for _, pairs := range r.Pairs {
		sum += float64(pairs)
		squares += float64(pairs) * float64(pairs)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(r.Pairs)) * squares)
}
