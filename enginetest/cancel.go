package enginetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Cancellation: a caller that gives up, at any moment, leaves no claim and no waiter behind.

// answered is the time after which a claim has an answer, so that a caller that gives up knows that
// the lock was taken.
const answered = time.Second

var cancelChecks = []check{
	{"Cancellation/before asking", 0, func(w *world) {
		c := w.client("one")
		ctx, cancel := context.WithCancel(w.ctx())
		cancel()
		_, err := c.Lock(ctx, "db")
		w.is(err, context.Canceled)
		w.is(err, lockkeeper.ErrNotAcquired)
		w.free(exclusive("db"))
	}},
	{"Cancellation/while waiting", fifo, func(w *world) {
		holder, k, behind := w.worker("holder", nil), w.worker("waiter", nil), w.peer("behind")
		h, err := holder.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		_, err = k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, func(giveUp func()) {
			time.AfterFunc(answered, giveUp)
		})
		w.is(err, context.Canceled)
		w.is(err, lockkeeper.ErrNotAcquired)
		behind.queue(exclusive("db"))
		w.ok(h.giveBack(w.ctx()))
		behind.waitGranted(behind.last)
	}},
	{"Cancellation/by a deadline", 0, func(w *world) {
		holder, c := w.peer("holder"), w.client("waiter")
		holder.hold(exclusive("db"))
		ctx, cancel := context.WithTimeout(w.ctx(), answered)
		defer cancel()
		began := w.now()
		_, err := c.Lock(ctx, "db")
		w.between("the wait ended", w.now()-began, answered/2, answered)
		w.is(err, lockkeeper.ErrNotAcquired)
		w.is(err, context.DeadlineExceeded)
		var e *lockkeeper.Error
		if errors.As(err, &e); len(e.Blocked) == 0 || e.Blocked[0].Ref != holder.ref(holder.last) {
			w.Errorf("the refusal names no blocker: %v", err)
		}
		holder.release(holder.last)
		w.free(exclusive("db"))
	}},
	{"Cancellation/leaves the lock to a try at once", 0, func(w *world) {
		holder, waiter, third := w.client("holder"), w.client("waiter"), w.client("third")
		unknown := 0
		const times = 50
		for i := range times {
			h, err := holder.Lock(w.ctx(), "db")
			w.ok(err)
			var ctx context.Context
			var cancel context.CancelFunc
			var ended error
			if i%2 == 0 {
				ctx, cancel = context.WithCancel(w.ctx())
				time.AfterFunc(20*time.Millisecond, cancel)
				ended = context.Canceled
			} else {
				ctx, cancel = context.WithTimeout(w.ctx(), 20*time.Millisecond)
				ended = context.DeadlineExceeded
			}
			_, err = waiter.Lock(ctx, "db")
			w.is(err, ended)
			cancel()
			w.ok(h.Release(w.ctx()))
			if errors.Is(err, lockkeeper.ErrUnavailable) {
				unknown++ // the engine took longer than a second: no promise applies
				w.free(exclusive("db"))
				continue
			}
			w.is(err, lockkeeper.ErrNotAcquired)
			got, err := third.TryLock(w.ctx(), "db")
			if err != nil {
				w.Fatalf("try %d, after a Lock was cancelled and the holder released: %v", i+1, err)
			}
			w.ok(got.Release(w.ctx()))
		}
		if unknown > times/2 {
			w.Errorf("%d of %d cancellations were not confirmed", unknown, times)
		}
	}},
	{"Cancellation/at each moment of a free lock", 0, func(w *world) {
		for _, m := range moments[:2] {
			w.cancelAt(m, false)
		}
	}},
	{"Cancellation/at each moment of a wait", 0, func(w *world) {
		for _, m := range moments {
			w.cancelAt(m, true)
		}
	}},
	{"Cancellation/in the moment of the grant", fifo, func(w *world) {
		holder, k := w.worker("holder", nil), w.worker("waiter", nil)
		ctx := w.ctx()
		for range 30 {
			h, err := holder.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
			w.ok(err)
			var racing sync.WaitGroup
			got, err := k.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive("db")}}, func(giveUp func()) {
				racing.Go(func() {
					<-time.After(5 * time.Millisecond)
					racing.Go(giveUp)
					if err := h.giveBack(ctx); err != nil {
						w.Error(err)
					}
				})
			})
			racing.Wait()
			if err == nil {
				w.ok(got.giveBack(ctx))
			} else {
				w.is(err, context.Canceled)
			}
		}
		w.free(exclusive("db"))
	}},
	{"Cancellation/of a place in line", fifo, func(w *world) {
		holder, c, behind := w.peer("holder"), w.client("waiter"), w.peer("behind")
		holder.hold(exclusive("db"))
		p, err := c.Enqueue(w.ctx(), lockkeeper.Exclusive("db"))
		w.ok(err)
		ctx, cancel := context.WithTimeout(w.ctx(), 50*time.Millisecond)
		defer cancel()
		_, err = p.Wait(ctx) // bounds this Wait only
		w.is(err, lockkeeper.ErrNotAcquired)
		behind.queue(exclusive("db"))
		w.ok(p.Cancel())
		w.ok(p.Cancel())
		_, err = p.Wait(w.ctx())
		w.is(err, lockkeeper.Cancelled)
		holder.release(holder.last)
		behind.waitGranted(behind.last)
	}},
	{"Cancellation/of a place that was granted unseen", 0, func(w *world) {
		c := w.client("waiter")
		p, err := c.Enqueue(w.ctx(), lockkeeper.Exclusive("db"))
		w.ok(err)
		w.ok(p.Cancel())
		w.free(exclusive("db"))
	}},
	{"Cancellation/of an upgrade", converts, func(w *world) {
		c, reader := w.client("upgrader"), w.peer("reader")
		h, err := c.Acquire(w.ctx(), lockkeeper.Shared("db"))
		w.ok(err)
		reader.hold(shared("db"))
		ctx, cancel := context.WithTimeout(w.ctx(), answered)
		defer cancel()
		w.is(h.Upgrade(ctx), context.DeadlineExceeded)
		w.ok(h.Err())
		reader.release(reader.last)
		w.free(shared("db")) // it did not become exclusive
		w.ok(h.Release(w.ctx()))
	}},
	{"Cancellation/by closing the client", fifo, func(w *world) {
		holder, c, behind := w.peer("holder"), w.client("waiter"), w.peer("behind")
		holder.hold(exclusive("db"))
		p, err := c.Enqueue(w.ctx(), lockkeeper.Exclusive("db"))
		w.ok(err)
		other, err := c.Lock(w.ctx(), "other")
		w.ok(err)
		behind.queue(exclusive("db"))
		w.ok(c.Close())
		_, err = p.Wait(w.ctx())
		w.is(err, lockkeeper.Cancelled)
		w.is(other.Err(), lockkeeper.ErrNotHeld)
		w.free(exclusive("other"))
		holder.release(holder.last)
		behind.waitGranted(behind.last)
		_, err = c.Lock(w.ctx(), "db")
		w.is(err, lockkeeper.ErrInvalid)
	}},
}

// cancelAt cancels a claim at the given moment. The lock is free or, if wait is set, becomes free
// during the wait. Whatever the result, no claim and no waiter may be left behind.
func (w *world) cancelAt(m moment, wait bool) {
	w.Helper()
	path := strings.ReplaceAll(string(m), " ", "-")
	holder := w.peer("holder")
	if wait {
		holder.hold(exclusive(path))
	}
	var giveUp atomic.Pointer[func()]
	waiting := make(chan struct{}, 100)
	k := w.worker("quitter", func(l *link) {
		l.hook = func(now moment) {
			if f := giveUp.Load(); f != nil && now == m {
				(*f)()
			}
			if now == afterClaim {
				waiting <- struct{}{}
			}
		}
	})
	ctx := w.ctx()
	var running sync.WaitGroup
	ended := make(chan struct{}) // on a bad network perhaps before the claim was answered
	got, err := k.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive(path)}}, func(f func()) {
		giveUp.Store(&f)
		if wait {
			running.Go(func() {
				select {
				case <-waiting:
				case <-ended:
				}
				if err := holder.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: holder.last}); err != nil {
					w.Error(err)
				}
			})
		}
	})
	close(ended)
	running.Wait()
	switch {
	case err == nil:
		w.ok(got.giveBack(ctx))
	case !errors.Is(err, context.Canceled):
		w.Errorf("given up %s: %v", m, err)
	}
	w.free(exclusive(path))
}
