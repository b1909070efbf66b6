package lockkeeper_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// Many goroutines lock, give up, nest, upgrade and cancel on one real engine: exclusive holders are
// alone, and no claim is left in the end.
func TestManyGoroutinesLeaveNothingBehind(t *testing.T) {
	seed := testmode.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{0, lockkeeper.DefaultTTL} {
			start := time.Now()
			c := lockkeeper.New(memlock.New(), lockkeeper.SessionTTL(ttl),
				lockkeeper.BootClock(func() time.Duration { return time.Since(start) }))
			w := &worker{t: t, c: c}
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() { w.work(rand.New(rand.NewPCG(seed, uint64(i)))) })
			}
			all.Wait()
			for s, err := range c.List(background, lockkeeper.Query{}) {
				t.Errorf("left behind: %v %v", s, err)
			}
			if w.held.Load() < 100 || w.givenUp.Load() < 100 {
				t.Errorf("%d held, %d given up: this run proves little", w.held.Load(), w.givenUp.Load())
			}
			c.Close()
		}
	})
}

type worker struct {
	t             *testing.T
	c             *lockkeeper.Client
	readers       atomic.Int64
	writers       atomic.Int64
	held, givenUp atomic.Int64
}

func (w *worker) work(r *rand.Rand) {
	for range 100 {
		ctx, cancel := context.WithTimeout(background, time.Duration(r.IntN(20))*time.Millisecond)
		request := lockkeeper.Exclusive("a")
		shared := r.IntN(3) > 0
		if shared {
			request = lockkeeper.Shared("a/b")
		}
		h, err := w.c.Acquire(ctx, request, lockkeeper.WithPriority(r.IntN(3)))
		if err != nil {
			w.givenUp.Add(1)
			if !errors.Is(err, lockkeeper.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				w.t.Errorf("acquire: %v", err)
			}
		} else {
			w.held.Add(1)
			w.use(r, ctx, h, shared)
			if err := h.Close(); err != nil {
				w.t.Errorf("close: %v", err)
			}
		}
		cancel()
	}
}

func (w *worker) use(r *rand.Rand, ctx context.Context, h *lockkeeper.Hold, shared bool) {
	pause := time.Duration(r.IntN(3)) * time.Millisecond
	if shared {
		w.readers.Add(1)
		if w.writers.Load() > 0 {
			w.t.Error("a reader beside a writer")
		}
		time.Sleep(pause)
		w.readers.Add(-1)
		if r.IntN(2) > 0 || h.Upgrade(ctx) != nil {
			return
		}
	}
	if w.writers.Add(1) != 1 || w.readers.Load() > 0 {
		w.t.Error("a writer beside somebody else")
	}
	if inner, err := w.c.TryLock(h.Context(), "a/b"); err != nil {
		w.t.Errorf("nested: %v", err)
	} else {
		inner.Close()
	}
	time.Sleep(pause)
	w.writers.Add(-1)
}
