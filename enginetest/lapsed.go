package enginetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// R12: a client stops using a hold a margin before its end, and reports that it lapsed. The hold
// lasts until that end.
var lapseChecks = []check{
	{"Lapsed/held to the stated end although the thief gives up", stealing, func(w *world) {
		victim, t, next := w.peer("victim"), w.peer("thief"), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		const after = time.Second
		sent := w.now()
		t.queueAs(taker(1, after, exclusive("db")))
		asked := victim.waitAsked(id)
		next.queue(exclusive("db"))
		ending := lapsed(id, lockkeeper.Stolen, asked.EndsAt)
		w.ok(victim.end(ending))
		w.ok(victim.end(ending)) // a duplicate
		victim.release(id)       // a later ending changes nothing
		t.release(t.last)
		s := next.waitGranted(next.last)
		w.between("granted", w.now()-sent, after, after)
		if s.Unconfirmed {
			w.Error("the victim's client has reported a lapse, and yet the grant is unconfirmed")
		}
		victim.waitEnded(id, lockkeeper.Stolen)
		w.ok(victim.end(ending)) // too late: it changes nothing
		next.stays(next.last, lockkeeper.Held)
	}},
	{"Lapsed/late lapse ends at once", stealing, func(w *world) {
		victim, t, next := w.peer("victim"), w.peer("thief"), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		const after = 2 * time.Second // time enough for the thief to give up
		t.queueAs(taker(1, after, exclusive("db")))
		asked := victim.waitAsked(id)
		t.release(t.last) // the thief withdraws its ask, so the engine ends nothing
		w.sleep(after + 100*time.Millisecond)
		next.queue(exclusive("db"))
		w.ok(victim.end(lapsed(id, lockkeeper.Stolen, asked.EndsAt)))
		next.waitGranted(next.last)
		victim.waitEnded(id, lockkeeper.Stolen)
	}},
	{"Lapsed/holds at most until the session expires", 0, func(w *world) {
		victim, next := w.renewedPeer("victim", w.shortTTL()), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		next.queue(exclusive("db"))
		w.ok(victim.end(lapsed(id, lockkeeper.Stolen, victim.lease.EndsAt+time.Hour)))
		next.waitGranted(next.last)
		victim.waitEnded(id, lockkeeper.Stolen)
	}},
	{"Lapsed/with the session, as the next attach says", 0, func(w *world) {
		ttl := 2 * w.shortTTL()
		p, next := w.peerFor("lost", ttl), w.peer("next")
		sent := p.sent
		held, queued := p.hold(exclusive("db")).Ref.ID, uint64(0)
		next.queue(exclusive("db"))
		queued = p.queue(exclusive("db"))
		for _, id := range []uint64{held, queued} {
			l := lockkeeper.Lapse{ID: id, Reason: lockkeeper.Expired, EndsAt: p.lease.EndsAt}
			p.session.Lapsed = append(p.session.Lapsed, l)
		}
		p.attach()
		p.session.Lapsed = nil
		p.waitEnded(queued, lockkeeper.Expired)
		p.renewUntil(next.grantedNow(next.last))
		if took := w.now() - sent; took < ttl {
			w.Errorf("granted %s after the session was attached for %s", took, ttl)
		}
		p.waitEnded(held, lockkeeper.Expired)
	}},
	{"Lapsed/for an end that it can't have is a release", 0, func(w *world) {
		p := w.peer("one")
		for _, why := range []lockkeeper.Reason{lockkeeper.Overdue, lockkeeper.Revoked} {
			id := p.hold(exclusive("db")).Ref.ID
			w.ok(p.end(lapsed(id, why, p.lease.EndsAt)))
			p.waitEnded(id, lockkeeper.Released)
		}
		id := p.hold(exclusive("db")).Ref.ID
		w.is(p.end(lapsed(id, lockkeeper.Released, 0)), lockkeeper.ErrInvalid)
		w.is(p.end(lapsed(id, lockkeeper.Stolen, -1)), lockkeeper.ErrInvalid)
		w.is(p.end(lapsed(id, lockkeeper.Stolen, lockkeeper.Forever)), lockkeeper.ErrInvalid)
		w.is(p.end(lapsed(1<<40, lockkeeper.Stolen, 1)), lockkeeper.ErrNotHeld)
		p.stays(id, lockkeeper.Held)
	}},
}

func lapsed(id uint64, why lockkeeper.Reason, endsAt time.Duration) lockkeeper.Ending {
	return lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lockkeeper.Lapse{ID: id, Reason: why, EndsAt: endsAt}}
}

// observer follows a path and receives the statuses that other clients see.
type observer struct {
	*world
	seen chan lockkeeper.Status
}

// observe follows a path.
func (w *world) observer(path lockkeeper.Path) *observer {
	w.Helper()
	o := &observer{w, make(chan lockkeeper.Status, 1000)}
	watcher := w.peer("watcher")
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	w.Cleanup(func() { cancel(); <-stopped })
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			for s, err := range watcher.engine.List(ctx, lockkeeper.Query{Follow: true, Meets: path}) {
				if err != nil {
					break // it lists again
				}
				o.seen <- s
			}
		}
	}()
	return o
}

// await waits until the observer sees the claim in the given state.
func (o *observer) await(ref lockkeeper.Ref, state lockkeeper.State) lockkeeper.Status {
	o.Helper()
	end := time.After(o.maxWait())
	for {
		select {
		case s := <-o.seen:
			if s.Ref == ref && s.State == state {
				return s
			}
		case <-end:
			o.Fatalf("no other client sees claim %s %s", ref, state)
		}
	}
}

// allowedReasons is the table of R17: for each reason that a holder may get, the reasons that other
// clients may see. For other reasons, the holder and the others must get the same one.
var allowedReasons = map[lockkeeper.Reason][]lockkeeper.Reason{
	lockkeeper.Released:        {lockkeeper.Released, lockkeeper.Yielded},
	lockkeeper.Unreachable:     {lockkeeper.Expired},
	lockkeeper.Suspended:       {lockkeeper.Expired},
	lockkeeper.QuorumLost:      {lockkeeper.Expired},
	lockkeeper.EngineRestarted: {},
}

// checkReasons waits until h has ended for its holder and for other clients. The others must see
// the reason want, and R17 must allow the pair.
func (o *observer) checkReasons(h *lockkeeper.Hold, want lockkeeper.Reason) {
	o.Helper()
	o.done(h.Done(), "notified of the end")
	seen := o.await(h.Ref(), lockkeeper.Ended)
	if seen.Reason != want {
		o.Errorf("other clients see it end as %s (%s), want %s", seen.Reason, seen.Text, want)
	}
	var e *lockkeeper.Error
	if !errors.As(h.Err(), &e) {
		o.Fatalf("the holder gets %v", h.Err())
	}
	allowed, other := allowedReasons[e.Reason]
	if !other {
		allowed = []lockkeeper.Reason{e.Reason}
	}
	if !slices.Contains(allowed, seen.Reason) {
		o.Errorf("the holder gets %s, and other clients %s (%s)", e.Reason, seen.Reason, seen.Text)
	}
	for s, err := range o.handles[0].List(o.ctx(), lockkeeper.Query{Ref: h.Ref()}) {
		if o.ok(err); s.State == lockkeeper.Ended && s.Reason != seen.Reason {
			o.Errorf("followers see it end as %s, and List as %s", seen.Reason, s.Reason)
		}
	}
}

// lock acquires a hold and waits until the observer sees it.
func (o *observer) lock(c *lockkeeper.Client, more ...lockkeeper.Request) *lockkeeper.Hold {
	o.Helper()
	h, err := c.Lock(o.ctx(), "db", more...)
	o.ok(err)
	o.await(h.Ref(), lockkeeper.Held)
	return h
}

// checkNext waits until next has the lock. The grant must not come before sent + end, the instant
// at which the engine ends the hold. The holder must know of its loss by then.
func (o *observer) checkNext(h *lockkeeper.Hold, next *lockkeeper.Client, sent, end time.Duration,
	more ...lockkeeper.Request) {
	o.Helper()
	got, err := next.Lock(o.ctx(), "db", more...)
	took := o.now() - sent
	o.ok(err)
	if h.Err() == nil && !got.Unconfirmed() {
		o.Error("the next one was granted, and the holder does not know that it lost")
	}
	if took < end {
		o.Errorf("granted %s after the end was set, want at least %s: there is no margin", took, end)
	}
	o.ok(got.Release(o.ctx()))
}

// R17: the holder and all other clients get the same reason, and a margin separates two holders.
var reasonPairChecks = []check{
	{"OneReason/stolen", lists | stealing, func(w *world) {
		victim, thief, o := w.client("victim"), w.client("thief"), w.observer("db")
		h := o.lock(victim)
		const after = 3 * time.Second
		o.checkNext(h, thief, w.now(), after, lockkeeper.WithPriority(1), lockkeeper.WithStealAfter(after))
		o.checkReasons(h, lockkeeper.Stolen)
	}},
	{"OneReason/revoked", lists | revokes, func(w *world) {
		victim, next, o := w.client("victim", lockkeeper.SessionTTL(w.shortTTL())), w.client("next"), w.observer("db")
		h := o.lock(victim)
		sent := w.now()
		w.ok(next.Revoke(w.ctx(), h.Ref(), false, lockkeeper.Label{As: "ops", Note: "the disk is full"}))
		o.checkNext(h, next, sent, w.shortTTL())
		o.checkReasons(h, lockkeeper.Revoked)
	}},
	{"OneReason/revoked by force", lists | revokes, func(w *world) {
		victim, next, o := w.client("victim"), w.client("next"), w.observer("db")
		h := o.lock(victim)
		w.ok(next.Revoke(w.ctx(), h.Ref(), true, lockkeeper.Label{As: "ops"}))
		o.checkReasons(h, lockkeeper.Revoked)
	}},
	{"OneReason/overdue", lists | maxHold, func(w *world) {
		victim, next, o := w.client("victim"), w.client("next"), w.observer("db")
		sent := w.now()
		h := o.lock(victim, lockkeeper.WithMaxHold(2*time.Second, time.Second))
		o.checkNext(h, next, sent, 3*time.Second)
		o.checkReasons(h, lockkeeper.Overdue)
	}},
	{"OneReason/released", lists, func(w *world) {
		c, o := w.client("one"), w.observer("db")
		h := o.lock(c)
		w.ok(h.Release(w.ctx()))
		o.checkReasons(h, lockkeeper.Released)
	}},
	{"OneReason/yielded", lists | stealing, func(w *world) {
		victim, t, o := w.client("victim"), w.peer("thief"), w.observer("db")
		h := o.lock(victim)
		t.queueAs(thief(1, exclusive("db")))
		w.done(h.YieldAsked(), "asked to yield")
		w.ok(h.Release(w.ctx()))
		o.checkReasons(h, lockkeeper.Yielded)
	}},
	{"OneReason/contact is lost, and comes back", lists, func(w *world) {
		o := w.observer("db")
		c, l := w.clientAndLink("lost", nil, lockkeeper.SessionTTL(w.shortTTL()))
		h := o.lock(c)
		l.cut.Store(true)
		w.done(h.Done(), "notified of the loss")
		l.cut.Store(false)
		again, err := c.Lock(w.ctx(), "db") // attaches the session again
		w.ok(err)
		o.checkReasons(h, lockkeeper.Expired)
		w.ok(again.Release(w.ctx()))
	}},
	{"OneReason/the session is taken over", lists, func(w *world) {
		o, id := w.observer("db"), lockkeeper.SessionID(w.name("session"))
		first, second := w.client("first", id), w.client("second", id)
		h := o.lock(first)
		nothing := func(context.Context) error { return nil }
		w.ok(second.Do(w.ctx(), "other", nothing))
		w.ok(first.Do(w.ctx(), "other", nothing)) // it attaches the session again and learns the end of its hold
		o.checkReasons(h, lockkeeper.Superseded)
	}},
}
