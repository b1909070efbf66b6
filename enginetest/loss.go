package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// lost waits until the hold's context ends, and checks the reason of the loss.
func (w *world) lost(h *lockkeeper.Hold, why ...lockkeeper.Reason) {
	w.Helper()
	w.done(h.Done(), "notified of the loss")
	err := h.Err()
	w.is(err, lockkeeper.ErrLost)
	cause := context.Cause(h.Context())
	w.is(cause, lockkeeper.ErrLost)
	for _, reason := range why {
		if errors.Is(err, reason) {
			return
		}
	}
	w.Errorf("lost: %v, want one of %v", err, why)
}

// Loss: a holder learns of its loss and the reason before the engine grants another client.
var lossChecks = []check{
	{"Loss/the wire is cut", 0, func(w *world) {
		k, next := w.worker("holder", nil, lockkeeper.SessionTTL(w.shortTTL())), w.worker("next", nil)
		h, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		if left := h.Remaining(); left <= 0 || left > w.shortTTL() {
			w.Errorf("%s remain of a TTL of %s", left, w.shortTTL())
		}
		k.link.cut.Store(true)
		got, err := next.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		if h.Err() == nil {
			w.Error("the next one was granted, and the holder does not know that it lost")
		}
		w.lost(h.Hold, lockkeeper.Unreachable, lockkeeper.Suspended, lockkeeper.Expired, lockkeeper.QuorumLost)
		if h.Remaining() != 0 {
			w.Errorf("%s remain of a lost hold", h.Remaining())
		}
		w.is(h.giveBack(w.ctx()), lockkeeper.ErrLost)
		k.link.cut.Store(false)
		w.ok(got.giveBack(w.ctx()))
		// the client recovers by itself
		again, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		w.ok(again.giveBack(w.ctx()))
	}},
	{"Loss/a short cut loses nothing", 0, func(w *world) {
		k := w.worker("holder", nil, lockkeeper.SessionTTL(2*w.shortTTL()))
		h, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		k.link.cut.Store(true)
		w.sleep(w.shortTTL() / 2)
		k.link.cut.Store(false)
		w.sleep(2 * w.shortTTL())
		w.ok(h.Err())
		w.ok(h.giveBack(w.ctx()))
	}},
	{"Loss/a claim sent into a cut wire is not held later", 0, func(w *world) {
		var running sync.WaitGroup
		ctx := w.ctx()
		for i := range 12 { // the check restores each link at another moment
			path := fmt.Sprint("db", i)
			c, l := w.clientAndLink("one", nil, lockkeeper.SessionTTL(w.shortTTL()))
			w.ok(c.Do(ctx, path, func(context.Context) error { return nil }))
			l.cut.Store(true)
			running.Go(func() {
				bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				if _, err := c.Lock(bounded, path); err == nil {
					w.Error("locked over a cut wire")
				}
				w.sleep(2*w.shortTTL() + time.Duration(i)*15*time.Millisecond) // the session has ended: the client resumes
				l.cut.Store(false)
				w.sleep(2 * w.shortTTL())
			})
		}
		running.Wait()
		for i := range 12 {
			w.free(exclusive(fmt.Sprint("db", i)))
		}
	}},
	{"Loss/a try that was refused unheard is not held later", 0, func(w *world) {
		// The engine remembers an ended claim for a TTL. A repetition after that would be a new
		// claim.
		var running sync.WaitGroup
		holder, ctx := w.peer("holder"), w.ctx()
		for i := range 12 {
			path := fmt.Sprint("db", i)
			c, l := w.clientAndLink("one", func(l *link) { l.remote = true }, lockkeeper.SessionTTL(w.shortTTL()))
			w.ok(c.Do(ctx, path, func(context.Context) error { return nil }))
			id := holder.hold(exclusive(path)).Ref.ID
			l.loseAnswers.Store(true)
			time.AfterFunc(w.shortTTL()-time.Duration(i)*40*time.Millisecond, func() { l.loseAnswers.Store(false) })
			time.AfterFunc(w.shortTTL()/3, func() { holder.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}) })
			running.Go(func() {
				if h, err := c.TryLock(ctx, path); err == nil {
					if err := h.Release(ctx); err != nil {
						w.Error(err)
					}
				}
				w.sleep(2 * w.shortTTL())
			})
		}
		running.Wait()
		for i := range 12 {
			w.free(exclusive(fmt.Sprint("db", i)))
		}
	}},
	{"Loss/a release over a cut wire", 0, func(w *world) {
		c, l := w.clientAndLink("one", nil, lockkeeper.SessionTTL(2*w.shortTTL()))
		h, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		l.cut.Store(true)
		ctx, cancel := context.WithTimeout(w.ctx(), 100*time.Millisecond)
		defer cancel()
		w.is(h.Release(ctx), lockkeeper.ErrUnavailable)
		w.is(h.Err(), lockkeeper.Released)
		l.cut.Store(false)
		w.free(exclusive("db")) // the client repeats the release in the background
	}},
	{"Loss/a release while the session ends", 0, func(w *world) {
		// A repeated release is not reported as a second one.
		var running sync.WaitGroup
		var confused atomic.Int64
		ctx := w.ctx()
		for i := range 12 {
			path := fmt.Sprint("db", i)
			c, l := w.clientAndLink("one", nil, lockkeeper.SessionTTL(w.shortTTL()))
			h, err := c.Lock(ctx, path)
			w.ok(err)
			l.cut.Store(true)
			time.AfterFunc(w.shortTTL()+time.Duration(i)*20*time.Millisecond, func() { l.cut.Store(false) })
			running.Go(func() {
				w.sleep(w.shortTTL() / 2)
				if err := h.Release(ctx); errors.Is(err, lockkeeper.ErrNotHeld) {
					confused.Add(1)
				}
			})
		}
		running.Wait()
		if n := confused.Load(); n > 0 {
			w.Errorf("released once, while the session ended: %d of 12 get ErrNotHeld, want nil, a loss or "+
				"unavailable", n)
		}
		for i := range 12 {
			w.free(exclusive(fmt.Sprint("db", i)))
		}
	}},
	{"Loss/stolen", stealing, func(w *world) {
		k, t := w.worker("victim", nil), w.worker("thief", nil)
		h, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		asked := h.YieldAsked()
		got, err := t.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}, priority: 1,
			more: []lockkeeper.Request{lockkeeper.WithStealAfter(time.Second)}}, nil)
		w.ok(err)
		w.done(asked, "asked to yield")
		w.lost(h.Hold, lockkeeper.Stolen)
		w.ok(got.giveBack(w.ctx()))
	}},
	{"Loss/revoked, with the operator's words", revokes, func(w *world) {
		c, op := w.client("victim", lockkeeper.SessionTTL(w.shortTTL())), w.client("operator")
		h, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		w.ok(op.Revoke(w.ctx(), h.Ref(), false, lockkeeper.Label{As: "eve", Note: "maintenance"}))
		w.done(h.YieldAsked(), "asked to yield")
		if asked := h.Asked(); asked == nil || asked.As != "eve" || asked.Note != "maintenance" {
			w.Errorf("asked %+v", asked)
		}
		w.lost(h, lockkeeper.Revoked)
	}},
	{"Loss/revoked by force", revokes, func(w *world) {
		c, op := w.client("victim"), w.client("operator")
		h, err := c.Lock(w.ctx(), "db")
		w.ok(err)
		w.ok(op.Revoke(w.ctx(), h.Ref(), true, lockkeeper.Label{As: "eve", Note: "now"}))
		if !w.harness.Bubble {
			w.ok(c.Do(w.ctx(), "something else", func(context.Context) error { return nil }))
		}
		got, err := op.Lock(w.ctx(), "db")
		w.ok(err)
		if !got.Unconfirmed() && h.Err() == nil {
			w.Error("granted as confirmed, and the victim does not know")
		}
	}},
	{"Loss/overdue", maxHold, func(w *world) {
		part := w.scale * 300 * time.Millisecond // of the longest hold: until it is asked to yield, and after that
		k, next := w.worker("holder", nil), w.worker("next", nil)
		h, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")},
			more: []lockkeeper.Request{lockkeeper.WithMaxHold(part, part)}}, nil)
		w.ok(err)
		if left := h.Remaining(); left > 2*part {
			w.Errorf("%s remain of a longest hold of %s", left, 2*part)
		}
		_, err = next.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		w.lost(h.Hold, lockkeeper.Overdue)
	}},
	{"Loss/the session is taken over", 0, func(w *world) {
		id := lockkeeper.SessionID(w.name("session"))
		first, second := w.client("first", id, lockkeeper.SessionTTL(w.shortTTL())), w.client("second", id,
			lockkeeper.SessionTTL(w.shortTTL()))
		h, err := first.Lock(w.ctx(), "db")
		w.ok(err)
		got, err := second.Lock(w.ctx(), "db")
		w.ok(err)
		w.rises(h.Fence(), got.Fence())
		w.ok(got.Release(w.ctx()))
		w.ok(second.Close())
		// The second client has left by now, so the engine may not remember the reason.
		w.lost(h, lockkeeper.Superseded, lockkeeper.EngineRestarted, lockkeeper.Unreachable, lockkeeper.QuorumLost,
			lockkeeper.Suspended, lockkeeper.Expired)
	}},
	{"Loss/Do returns it", lists | revokes, func(w *world) {
		c, op := w.client("victim"), w.client("operator")
		began := make(chan lockkeeper.Ref, 1)
		var revoked error
		var running sync.WaitGroup
		running.Go(func() { revoked = op.Revoke(w.ctx(), <-began, true, lockkeeper.Label{}) })
		err := c.Do(w.ctx(), "db", func(ctx context.Context) error {
			for s, err := range op.List(w.ctx(), lockkeeper.Query{Meets: "db"}) {
				w.ok(err)
				began <- s.Ref
			}
			w.done(ctx.Done(), "notified of the loss")
			w.is(context.Cause(ctx), lockkeeper.Revoked)
			return nil // the holder did not notice its loss
		}, lockkeeper.WithNote("careless"))
		running.Wait()
		w.ok(revoked)
		w.is(err, lockkeeper.ErrLost)
	}},
}

// Abandonment: a session without renewals ends within its TTL, whether it holds or waits.
var abandonChecks = []check{
	{"Abandonment/a holder", 0, func(w *world) {
		k, next := w.worker("dead", nil, lockkeeper.SessionTTL(w.shortTTL())), w.worker("next", nil)
		_, err := k.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		cut := w.now()
		k.link.cut.Store(true)
		h, err := next.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		// Its last renewal may have been up to a third of the TTL before the cut.
		w.between("granted", w.now()-cut, w.shortTTL()/2, w.shortTTL())
		w.ok(h.giveBack(w.ctx()))
	}},
	{"Abandonment/the first in line", fifo, func(w *world) {
		holder, next := w.worker("holder", nil), w.worker("next", nil)
		dead := w.renewedPeer("dead", w.shortTTL())
		h, err := holder.acquire(w.ctx(), demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
		w.ok(err)
		dead.queue(exclusive("db"))
		dead.dies()
		var running sync.WaitGroup
		ctx := w.ctx()
		running.Go(func() {
			got, err := next.acquire(ctx, demand{targets: []lockkeeper.Target{exclusive("db")}}, nil)
			if err != nil {
				w.Error(err)
				return
			}
			if err := got.giveBack(ctx); err != nil {
				w.Error(err)
			}
		})
		w.ok(h.giveBack(ctx))
		running.Wait()
		dead.sessionGone()
	}},
	{"Abandonment/many holds and waits of one session", counts | many, func(w *world) {
		dead := w.renewedPeer("dead", w.shortTTL())
		dead.hold(exclusive("a"), exclusive("b"))
		dead.hold(permits("k", 2, 2))
		dead.queue(exclusive("a"))
		dead.dies()
		w.free(exclusive("a"), exclusive("b"), permits("k", 2, 2))
		if w.claims(lists) {
			if all := w.peer("looker").list(lockkeeper.Query{Session: dead.session.ID}); len(all) != 0 {
				w.Errorf("a dead session still has %+v", all)
			}
		}
	}},
}
