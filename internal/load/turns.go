package load

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// A Locker acquires and releases exclusive locks for one worker.
type Locker interface {
	// Acquire waits until it has the path, or ctx ends. Between an Acquire and its Release there is no
	// other Acquire.
	Acquire(ctx context.Context, path string) error
	Release(ctx context.Context, path string) error
}

// Turns locks and releases the paths one after the other until the window has ended. It records how
// long each Acquire takes, if the load is timed.
func (w *Worker) Turns(l Locker, paths ...string) error {
	var asked time.Time
	for k := 0; !w.Over(); k = (k + 1) % len(paths) {
		if w.load.Timed {
			asked = time.Now()
		}
		if err := l.Acquire(w.load.waiting, paths[k]); err != nil {
			return w.UnlessOver(fmt.Errorf("acquire: %w", err))
		}
		if w.load.Timed {
			w.Took(time.Since(asked))
		}
		if err := l.Release(w.load.bound, paths[k]); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		w.Done(1)
	}
	return nil
}

// Contended is one path that all workers of a load want. It records hand-offs, from the call of a
// release until another worker has the path, and fails if two workers have the path at once. A
// worker that takes the path back before any other is no hand-off.
type Contended struct {
	// Yield makes each holder that keeps the path for no time let other goroutines run once. Within
	// one process the others have got in line then, so that every pair is a hand-off.
	Yield bool

	path     string
	keep     time.Duration
	began    time.Time
	holder   atomic.Int32 // number of the worker + 1; 0: none
	former   atomic.Int32 // the holder before, as in holder
	released atomic.Int64 // time of the latest release, since began; 0: none
}

// NewContended returns a path that each holder keeps for that time.
func NewContended(path string, keep time.Duration) *Contended {
	return &Contended{path: path, keep: keep, began: time.Now()}
}

// Turns locks and releases the path until the window has ended.
func (c *Contended) Turns(w *Worker, l Locker) error {
	for !w.Over() {
		if err := l.Acquire(w.load.waiting, c.path); err != nil {
			return w.UnlessOver(fmt.Errorf("acquire: %w", err))
		}
		if err := c.hold(w); err != nil {
			return err
		}
		if err := l.Release(w.load.bound, c.path); err != nil {
			return w.UnlessOver(fmt.Errorf("release: %w", err))
		}
		w.Done(1)
	}
	return nil
}

// hold checks that the worker is alone, records the hand-off, and keeps the path.
func (c *Contended) hold(w *Worker) error {
	now := time.Since(c.began)
	if !c.holder.CompareAndSwap(0, int32(w.Number)+1) {
		return fmt.Errorf("two hold the path at once: worker %d, and worker %d", w.Number, c.holder.Load()-1)
	}
	if before := c.released.Load(); before != 0 && c.former.Load() != int32(w.Number)+1 {
		w.Took(now - time.Duration(before))
	}
	switch {
	case c.keep > 0:
		keep := time.NewTimer(c.keep)
		select {
		case <-keep.C:
		case <-w.load.waiting.Done():
			keep.Stop()
		}
	case c.Yield:
		runtime.Gosched()
	}
	c.former.Store(int32(w.Number) + 1)
	c.holder.Store(0)
	c.released.Store(int64(time.Since(c.began)))
	return nil
}
