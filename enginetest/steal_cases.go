package enginetest

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// lockAs requests db with the given priority.
func (k *worker) lockAs(priority int, more ...lockkeeper.Request) (*held, error) {
	return k.acquire(k.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}, priority: priority, more: more}, nil)
}

// lockLater is lockAs in the background.
func (k *worker) lockLater(priority int, more ...lockkeeper.Request) <-chan result {
	answer := make(chan result, 1)
	ctx := k.ctx()
	go func() {
		h, err := k.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive("db")}, priority: priority, more: more}, nil)
		answer <- result{h, err}
	}()
	return answer
}

type result struct {
	*held
	err error
}

// waiting returns when the given number of claims wait for db.
func (w *world) waiting(n int) {
	w.Helper()
	p := w.peer("looker")
	for end := time.After(w.maxWait()); ; {
		found := 0
		for _, s := range p.list(lockkeeper.Query{Meets: "db"}) {
			if s.State == lockkeeper.Waiting {
				found++
			}
		}
		if found == n {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			w.Fatalf("%d wait, want %d", found, n)
		}
	}
}

func (w *world) three() (l, t, m *worker) {
	w.Helper()
	return w.worker("L", nil), w.worker("T", nil), w.worker("M", nil)
}

// Cases T2: an urgent job gets the lock from a less urgent one. The holder keeps the lock until it
// releases or its time is over; only then does the engine grant the most urgent job.
var stealCases = []check{
	{"T2/case T2.1 held", 0, func(w *world) {
		l := w.worker("L", nil)
		h, err := l.lockAs(0)
		w.ok(err)
		w.ok(h.Err())
		w.ok(h.giveBack(w.ctx()))
	}},
	{"T2/case T2.2 equals only wait", stealing, func(w *world) {
		l, t, _ := w.three()
		h, err := l.lockAs(1)
		w.ok(err)
		named := false
		for wait := 5 * time.Millisecond; !named && wait < w.maxWait(); wait *= 4 {
			_, err = t.lockAs(1, lockkeeper.WithSteal(), lockkeeper.WithWait(wait))
			w.is(err, lockkeeper.ErrNotAcquired)
			w.is(err, lockkeeper.TimedOut)
			var e *lockkeeper.Error
			if errors.As(err, &e); len(e.Blocked) > 0 && e.Blocked[0].Ref != h.Ref() {
				w.Errorf("the refusal names another blocker: %v", err)
			}
			named = len(e.Blocked) > 0 // an engine that had no time to answer names none
		}
		if !named {
			w.Errorf("the refusal names no blocker: %v", err)
		}
		w.ok(h.Err())
		if h.Asked() != nil {
			w.Error("the holder was asked to yield to an equal")
		}
		w.ok(h.giveBack(w.ctx()))
	}},
	{"T2/case T2.4 taken again with a higher priority", ranked | amends, func(w *world) {
		c := w.client("l")
		first, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		second, err := c.Lock(w.within(first), "db", lockkeeper.WithPriority(1))
		w.ok(err)
		w.ok(first.Err())
		w.ok(second.Err())
		if w.claims(lists) {
			for s, err := range c.List(w.ctx(), lockkeeper.Query{Ref: first.Ref()}) {
				w.ok(err)
				if s.Priority != 1 {
					w.Errorf("priority %d, want 1", s.Priority)
				}
			}
		}
		other := w.client("other")
		w.ok(first.Release(w.ctx()))
		_, err = other.TryLock(w.ctx(), "db")
		w.is(err, lockkeeper.ErrNotAcquired)
		w.ok(second.Release(w.ctx()))
		w.free(exclusive("db"))
	}},
	{"T2/case T2.6 released in time", 0, func(w *world) {
		l, t, _ := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		got := t.lockLater(0, lockkeeper.WithWait(w.maxWait()))
		w.sleep(10 * time.Millisecond)
		w.ok(h.giveBack(w.ctx()))
		r := <-got
		w.ok(r.err)
		w.is(h.Err(), lockkeeper.Released)
		w.ok(r.giveBack(w.ctx()))
	}},
	{"T2/case T2.7 told of the release", 0, func(w *world) {
		c := w.client("l")
		h, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		done := h.Done()
		w.ok(h.Release(w.ctx()))
		w.done(done, "notified of the release")
		w.done(h.Done(), "notified of the loss") // at once
		w.is(h.Release(w.ctx()), lockkeeper.ErrNotHeld)
		w.free(exclusive("db"))
	}},
	{"T2/case T2.10 stolen", stealing, func(w *world) {
		l, t, _ := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		got, err := t.lockAs(1, lockkeeper.WithStealAfter(500*time.Millisecond))
		w.ok(err)
		w.lost(h.Hold, lockkeeper.Stolen)
		w.ok(got.Err())
		w.ok(got.giveBack(w.ctx()))
	}},
	{"T2/case T2.12 and T2.20 the most urgent goes first, after the acknowledgement",
		stealing | lists, func(w *world) {
			l, t, m := w.three()
			h, err := l.lockAs(0)
			w.ok(err)
			low := t.lockLater(1, lockkeeper.WithSteal(), lockkeeper.WithWait(8*time.Second))
			w.done(h.YieldAsked(), "asked to yield")
			w.waiting(1)
			high := m.lockLater(2, lockkeeper.WithSteal())
			w.waiting(2)
			w.sleep(30 * time.Millisecond) // the holder needs that long to stop
			select {
			case r := <-high:
				w.Fatalf("granted before the holder has acknowledged: %v", r)
			default:
			}
			w.ok(h.giveBack(w.ctx()))
			r := <-high
			w.ok(r.err)
			lowest := <-low
			w.is(lowest.err, lockkeeper.TimedOut)
			var e *lockkeeper.Error
			if errors.As(lowest.err, &e); len(e.Blocked) == 0 || e.Blocked[0].Ref != r.Ref() {
				w.Errorf("it does not say that M has it: %v", lowest.err)
			}
			w.ok(r.giveBack(w.ctx()))
		}},
	{"T2/case T2.13 nothing at all", 0, func(w *world) {
		_, err := w.client("l").Acquire(w.ctx())
		w.is(err, lockkeeper.ErrInvalid)
		if errors.Is(err, lockkeeper.ErrNotAcquired) {
			w.Errorf("asking for nothing is answered as if it were taken: %v", err)
		}
	}},
	{"T2/case T2.14 several at once", many, func(w *world) {
		c := w.client("l")
		h, err := c.Acquire(w.ctx(), lockkeeper.Exclusive("a"), lockkeeper.Exclusive("b"))
		w.ok(err)
		w.ok(h.Release(w.ctx()))
		w.done(h.Done(), "notified of the release")
		w.free(exclusive("a"), exclusive("b"))
	}},
	{"T2/case T2.20 a thief is robbed in turn", stealing, func(w *world) {
		l, t, m := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		second, err := t.lockAs(1, lockkeeper.WithStealAfter(300*time.Millisecond))
		w.ok(err)
		w.lost(h.Hold, lockkeeper.Stolen)
		third, err := m.lockAs(2, lockkeeper.WithStealAfter(300*time.Millisecond))
		w.ok(err)
		w.lost(second.Hold, lockkeeper.Stolen)
		w.ok(third.Err())
		w.ok(third.giveBack(w.ctx()))
	}},
	{"T2/case T2.22 every handle is told", stealing, func(w *world) {
		c, t := w.client("l"), w.worker("T", nil)
		first, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		second, err := c.Lock(w.within(first), "db")
		w.ok(err)
		_, err = t.lockAs(1, lockkeeper.WithStealAfter(300*time.Millisecond))
		w.ok(err)
		w.lost(first, lockkeeper.Stolen)
		w.lost(second, lockkeeper.Stolen)
	}},
	{"T2/case T2.24 one attempt", 0, func(w *world) {
		l, t, _ := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		began := w.now()
		_, err = t.lockAs(0, lockkeeper.WithWait(0))
		w.is(err, lockkeeper.ErrNotAcquired)
		w.between("refused", w.now()-began, 0, 0)
		w.ok(h.giveBack(w.ctx()))
	}},
	{"T2/case T2.25 a TTL of a month", 0, func(w *world) {
		h, err := w.client("l", lockkeeper.SessionTTL(30*24*time.Hour)).Lock(w.ctx(), "db")
		w.ok(err)
		w.sleep(30 * time.Millisecond)
		w.ok(h.Err())
		if left := h.Remaining(); left < 29*24*time.Hour {
			w.Errorf("%s remain of 30 days", left)
		}
		w.ok(h.Release(w.ctx()))
	}},
	{"T2/case T2.28 a victim that never acknowledges", stealing, func(w *world) {
		l, t, _ := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		began := w.now()
		_, err = t.lockAs(1, lockkeeper.WithSteal(), lockkeeper.WithWait(100*time.Millisecond))
		w.is(err, lockkeeper.TimedOut)
		w.between("it settled", w.now()-began, 100*time.Millisecond, 100*time.Millisecond)
		w.ok(h.Err())
		w.ok(h.giveBack(w.ctx()))
	}},
	{"T2/case T2.30 first come first served", fifo | lists, func(w *world) {
		l, first, second := w.three()
		h, err := l.lockAs(0)
		w.ok(err)
		one := first.lockLater(0)
		w.waiting(1)
		two := second.lockLater(0)
		w.waiting(2)
		w.ok(h.giveBack(w.ctx()))
		r := <-one
		w.ok(r.err)
		select {
		case <-two:
			w.Fatal("both hold")
		case <-time.After(20 * time.Millisecond):
		}
		w.ok(r.giveBack(w.ctx()))
		r = <-two
		w.ok(r.err)
		w.ok(r.giveBack(w.ctx()))
	}},
	{"T2/the holder gives back inside Do", stealing, func(w *world) {
		c, t := w.client("polite"), w.worker("T", nil)
		began := make(chan struct{})
		finished := make(chan error, 1)
		ctx := w.ctx()
		go func() {
			h, err := c.Lock(ctx, "db")
			if err == nil {
				close(began)
				select {
				case <-h.YieldAsked():
				case <-ctx.Done():
				}
				err = h.Release(context.Background())
			}
			finished <- err
		}()
		w.done(began, "the holder has begun")
		got, err := t.lockAs(1, lockkeeper.WithSteal())
		w.ok(err)
		w.ok(<-finished)
		if got.Unconfirmed() {
			w.Error("the holder released, and yet the grant is unconfirmed")
		}
		w.ok(got.giveBack(w.ctx()))
	}},
}
