// Package priorities is an example that measures: how much of a lock a worker of low priority gets
// while a stream of urgent claims wants the same lock, and how long the urgent ones wait. Its test
// runs it in fake time and holds the table in docs/priorities.md.
package priorities

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Policy says how urgent claims and the low worker treat each other.
type Policy struct {
	Name  string
	Steal bool          // urgent claims ask the low worker to yield
	Step  time.Duration // it yields between steps of this length
	// Patience is how long the low worker waits for one job, all waits together, before its claim
	// has the priority of the urgent ones; 0: it waits without limit.
	Patience time.Duration
	// MaxHold bounds the hold of an urgent claim, whose work then stays undone; 0: no bound.
	MaxHold time.Duration
}

// The load: urgent claims arrive at random and hold the lock for urgentHold each. The low worker has
// one job after another, and each needs the lock for lowJob, in steps.
const (
	path       = "db"
	low        = 0
	urgent     = 1
	urgentHold = 5 * time.Second
	lowJob     = 30 * time.Second
)

// A Result is what came out of one run.
type Result struct {
	LowShare   float64       // part of the time in which the low worker did steps
	LowLongest time.Duration // its longest wait for the lock
	UrgentMean time.Duration // mean wait of the urgent claims, those that still wait at the end included
}

// Measure runs the low worker and urgent claims for total. load is the part of the time that the
// urgent claims want: with 1 and more they want all of it. seed fixes when they arrive. Both clients
// must reach the same engine.
func Measure(forLow, forUrgent *lockkeeper.Client, p Policy, load float64, total time.Duration, seed uint64) (Result,
	error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer time.AfterFunc(total, cancel).Stop()
	w := worker{client: forLow, policy: p}
	s := stream{client: forUrgent, policy: p}
	var running sync.WaitGroup
	running.Go(func() { w.work(ctx) })
	running.Go(func() { s.arrive(ctx, load, rand.New(rand.NewPCG(seed, seed))) })
	running.Wait()
	mean := time.Duration(0)
	if s.claims > 0 {
		mean = s.waited / time.Duration(s.claims)
	}
	return Result{w.worked.Seconds() / total.Seconds(), w.longest, mean}, errors.Join(w.failed, s.failed)
}

// pause waits for d, or until ctx ends, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// worker is the low worker and what it has achieved.
type worker struct {
	client          *lockkeeper.Client
	policy          Policy
	worked, longest time.Duration
	failed          error
}

func (w *worker) work(ctx context.Context) {
	for w.failed == nil && ctx.Err() == nil {
		w.failed = w.job(ctx)
	}
}

// job does the steps of one job, and claims the lock again after each time that it yielded.
func (w *worker) job(ctx context.Context) error {
	left, patience := lowJob, w.policy.Patience
	for left > 0 && ctx.Err() == nil {
		began := time.Now()
		hold, err := w.wait(ctx, patience)
		waited := time.Since(began)
		w.longest = max(w.longest, waited)
		if err != nil {
			return notAtTheEnd(ctx, err)
		}
		if w.policy.Patience > 0 {
			patience = max(patience-waited, time.Nanosecond)
		}
		for yields := false; left > 0 && !yields && pause(ctx, w.policy.Step); yields = hold.Asked() != nil {
			left -= w.policy.Step
			w.worked += w.policy.Step
		}
		if err := hold.Close(); err != nil {
			return err
		}
	}
	return nil
}

// wait returns the lock. When patience is over, 0 for never, the waiting claim gets the priority of the
// urgent ones. It keeps its ticket, so it is ahead of all that came later, and none can steal from it.
func (w *worker) wait(ctx context.Context, patience time.Duration) (*lockkeeper.Hold, error) {
	pending, err := w.client.Enqueue(ctx, lockkeeper.Exclusive(path), lockkeeper.WithPriority(low))
	if err != nil {
		return nil, err
	}
	patient, stop := ctx, context.CancelFunc(func() {})
	if patience > 0 {
		patient, stop = context.WithTimeout(ctx, patience)
	}
	defer stop()
	hold, err := pending.Wait(patient)
	if err != nil && ctx.Err() == nil && patient.Err() != nil {
		if err := pending.Amend(ctx, lockkeeper.WithPriority(urgent)); err != nil {
			return nil, err
		}
		hold, err = pending.Wait(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, pending.Cancel())
	}
	return hold, nil
}

// notAtTheEnd returns err unless ctx has ended, which ends every wait.
func notAtTheEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stream is the urgent claims, and how long they waited in all.
type stream struct {
	client *lockkeeper.Client
	policy Policy

	mu     sync.Mutex
	claims int
	waited time.Duration
	failed error
}

// arrive makes urgent claims at random times until ctx ends, and waits until all have ended.
func (s *stream) arrive(ctx context.Context, load float64, random *rand.Rand) {
	var running sync.WaitGroup
	for pause(ctx, time.Duration(random.ExpFloat64()*float64(urgentHold)/load)) {
		running.Go(func() {
			began := time.Now()
			err := s.claim(ctx, began)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed = errors.Join(s.failed, notAtTheEnd(ctx, err))
		})
	}
	running.Wait()
}

func (s *stream) claim(ctx context.Context, began time.Time) error {
	requests := []lockkeeper.Request{lockkeeper.Exclusive(path), lockkeeper.WithPriority(urgent)}
	if s.policy.Steal {
		requests = append(requests, lockkeeper.WithSteal())
	}
	if s.policy.MaxHold > 0 {
		requests = append(requests, lockkeeper.WithMaxHold(s.policy.MaxHold, 0))
	}
	hold, err := s.client.Acquire(ctx, requests...)
	s.mu.Lock()
	s.claims++
	s.waited += time.Since(began)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-hold.Done(): // its longest hold is over
	case <-time.After(urgentHold):
	}
	if err := hold.Close(); !errors.Is(err, lockkeeper.Overdue) {
		return err
	}
	return nil
}
