package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// timing is how long a round goes on.
type timing struct {
	Warm  time.Duration `json:"warm"`  // not counted
	Run   time.Duration `json:"run"`   // counted
	Keep  time.Duration `json:"keep"`  // for how long a holder keeps it in hand-off
	Batch int           `json:"batch"` // paths in a batch
}

// comeBack is how long workers may take to end after a round.
const comeBack = 20 * time.Second

// sample is what one round of one peer came to.
type sample struct {
	Pairs     int64         `json:"pairs"` // acquired and released
	Elapsed   time.Duration `json:"elapsed"`
	ClientCPU time.Duration `json:"client_cpu"`
	ServerCPU time.Duration `json:"server_cpu,omitempty"`
	OtherCPU  time.Duration `json:"other_cpu"`      // of all other processes, to 10 ms
	Jain      float64       `json:"jain,omitempty"` // 1: all clients got the same; 1/clients: one got all
	Handoffs  int           `json:"handoffs,omitempty"`
	P50       time.Duration `json:"p50,omitempty"` // from the release's beginning until the next one has it
	P99       time.Duration `json:"p99,omitempty"`
}

// crew is the workers of one round, and what they share.
type crew struct {
	workload workload
	timing   timing
	workers  []*worker
	hot      string // the contended path, of this round alone: who gives up may leave it locked
	begin    time.Time
	bound    context.Context // ends when all has to end
	waiting  context.Context // ends when nobody needs to wait any more

	stopped  atomic.Bool
	counting atomic.Bool
	inside   atomic.Int32 // who has the contended path: number + 1
	released atomic.Int64 // when it was released last, since begin
}

type worker struct {
	number   int
	locker   locker
	pairs    atomic.Int64
	handoffs []time.Duration
	_        [64]byte // so that workers don't share a cache line
}

// measure runs one round of the workload.
func measure(ctx context.Context, w workload, p peer, t timing) (sample, error) {
	runtime.GC() // what the round before has left is not for this one to sweep
	opened, err := p.open(ctx, w.Clients)
	if err != nil {
		return sample{}, err
	}
	closed := sync.OnceFunc(opened.close)
	defer closed()
	bound, cancel := context.WithTimeout(ctx, t.Warm+t.Run+comeBack)
	defer cancel()
	defer context.AfterFunc(bound, closed)() // whatever hangs ends with its connection
	c := &crew{workload: w, timing: t, hot: hotPath(), begin: time.Now(), bound: bound}
	for i := range w.Clients {
		c.workers = append(c.workers, &worker{number: i, locker: opened.locker(i)})
	}
	return c.run(p.server())
}

// run sets the workers to work and looks at them twice: what lies between is
// the sample.
func (c *crew) run(server *process) (sample, error) {
	var giveUp context.CancelFunc
	c.waiting, giveUp = context.WithCancel(c.bound)
	defer giveUp()
	failures := make(chan error, len(c.workers)+1)
	var all sync.WaitGroup
	for _, w := range c.workers {
		all.Go(func() {
			if err := c.work(w); err != nil {
				failures <- err
			}
		})
	}
	var s sample
	if err := c.pause(c.timing.Warm, failures); err != nil {
		failures <- err
	} else if s, err = c.window(server, failures); err != nil {
		failures <- err
	}
	c.stopped.Store(true)
	giveUp()
	all.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return sample{}, err
	}
	if c.bound.Err() != nil {
		return sample{}, fmt.Errorf("the workers did not end within %s of the round's end: %w", comeBack, c.bound.Err())
	}
	return s, c.handoffs(&s)
}

// pause waits for d, or for the first failure.
func (c *crew) pause(d time.Duration, failures <-chan error) error {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
		return nil
	case err := <-failures:
		return err
	case <-c.bound.Done():
		return c.bound.Err()
	}
}

// window counts for the time of the round.
func (c *crew) window(server *process, failures <-chan error) (s sample, err error) {
	before, err := c.look(server)
	if err != nil {
		return s, err
	}
	c.counting.Store(true)
	if err := c.pause(c.timing.Run, failures); err != nil {
		return s, err
	}
	c.counting.Store(false)
	after, err := c.look(server)
	if err != nil {
		return s, err
	}
	each := make([]int64, len(after.pairs))
	for i := range each {
		each[i] = after.pairs[i] - before.pairs[i]
		s.Pairs += each[i]
	}
	s.Elapsed = after.at - before.at
	s.ClientCPU, s.ServerCPU = after.client-before.client, after.server-before.server
	s.OtherCPU = max(after.all-before.all-s.ClientCPU-s.ServerCPU, 0)
	if c.workload.Kind == contended || c.workload.Kind == handoff {
		s.Jain = jain(each)
	}
	return s, nil
}

// look is what has been used and done until now.
type look struct {
	at, client, server, all time.Duration
	pairs                   []int64
}

func (c *crew) look(server *process) (l look, err error) {
	for _, w := range c.workers {
		l.pairs = append(l.pairs, w.pairs.Load())
	}
	l.at = time.Since(c.begin)
	if l.client, err = ownCPU(); err == nil && server != nil {
		l.server, err = server.cpu()
	}
	if err == nil {
		l.all, err = busy()
	}
	return l, err
}

// handoffs adds what the workers have seen of hand-offs.
func (c *crew) handoffs(s *sample) error {
	var all []time.Duration
	for _, w := range c.workers {
		all = append(all, w.handoffs...)
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	s.Handoffs, s.P50, s.P99 = len(all), percentile(all, 50), percentile(all, 99)
	return nil
}

// work is what one worker does until the round is over.
func (c *crew) work(w *worker) error {
	switch c.workload.Kind {
	case distinct:
		return c.workApart(w)
	case batches:
		return c.workBatches(w)
	default:
		return c.workTogether(w)
	}
}

func (c *crew) workApart(w *worker) error {
	paths := pathsOf(w.number, ownPaths)
	for k := 0; !c.stopped.Load(); k = (k + 1) % len(paths) {
		if err := w.locker.acquire(c.bound, paths[k]); err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if err := w.locker.release(c.bound, paths[k]); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		w.pairs.Add(1)
	}
	return nil
}

func (c *crew) workBatches(w *worker) error {
	paths := pathsOf(w.number, c.timing.Batch)
	b, ok := w.locker.(batcher)
	if !ok {
		return errors.New("this peer does no batches, though it says so")
	}
	for !c.stopped.Load() {
		if err := b.batch(c.bound, paths); err != nil {
			return fmt.Errorf("batch: %w", err)
		}
		w.pairs.Add(int64(len(paths)))
	}
	return nil
}

func (c *crew) workTogether(w *worker) error {
	for !c.stopped.Load() {
		if err := w.locker.acquire(c.waiting, c.hot); err != nil {
			return c.unlessOver("acquire", err)
		}
		if err := c.enter(w); err != nil {
			return err
		}
		if err := w.locker.release(c.bound, c.hot); err != nil {
			return c.unlessOver("release", err)
		}
		w.pairs.Add(1)
	}
	return nil
}

// enter is what a holder does: it sees that it is alone and how long it took
// since the one before let go.
func (c *crew) enter(w *worker) error {
	now := time.Since(c.begin)
	if !c.inside.CompareAndSwap(0, int32(w.number)+1) {
		return fmt.Errorf("two hold the path at once: worker %d, and worker %d", w.number, c.inside.Load()-1)
	}
	if before := c.released.Load(); before != 0 && c.counting.Load() {
		w.handoffs = append(w.handoffs, now-time.Duration(before))
	}
	if c.workload.Kind == handoff {
		keep := time.NewTimer(c.timing.Keep)
		select {
		case <-keep.C:
		case <-c.waiting.Done():
			keep.Stop()
		}
	}
	c.inside.Store(0)
	c.released.Store(int64(time.Since(c.begin)))
	return nil
}

// unlessOver is err, but nothing if the round is over: then waits are cut short.
func (c *crew) unlessOver(what string, err error) error {
	if c.waiting.Err() != nil && c.stopped.Load() {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
