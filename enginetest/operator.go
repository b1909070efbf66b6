package enginetest

import (
	"context"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func freezing(path string, d time.Duration) lockkeeper.Want {
	return lockkeeper.Want{Targets: []lockkeeper.Target{exclusive(path)}, Freeze: d}
}

// R18: an operator can revoke and freeze.
var operatorChecks = []check{
	{"R18/a revoked holder is asked, then ended after its TTL", revokes, func(w *world) {
		victim, op := w.renewedPeer("victim", w.shortTTL()), w.peer("operator")
		id := victim.hold(exclusive("db")).Ref.ID
		sent := w.now()
		w.ok(op.end(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   victim.ref(id),
			Label: lockkeeper.Label{As: "eve", Note: "maintenance"},
		}))
		asked := victim.waitAsked(id)
		if asked.As != "eve" || asked.Note != "maintenance" || asked.Reason != lockkeeper.Revoked ||
			asked.Left > w.shortTTL() {
			w.Errorf("the holder gets %+v", asked)
		}
		w.sleep(w.shortTTL() / 2)
		// A repeated revocation does not postpone the end.
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id)}))
		s := victim.renewalShows(id, "ended", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Ended })
		w.between("revoked", w.now()-sent, w.shortTTL(), w.shortTTL())
		if s.Reason != lockkeeper.Revoked || s.Text != "maintenance (by eve)" {
			w.Errorf("ended as %s (%q), want revoked by eve for maintenance", s.Reason, s.Text)
		}
		w.free(exclusive("db"))
	}},
	{"R18/a revoked holder that gives back has yielded", revokes, func(w *world) {
		victim, op := w.peer("victim"), w.peer("operator")
		id := victim.hold(exclusive("db")).Ref.ID
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id)}))
		victim.waitAsked(id)
		victim.release(id)
		victim.waitEnded(id, lockkeeper.Yielded)
	}},
	{"R18/by force at once", revokes, func(w *world) {
		victim, op, next := w.peer("victim"), w.peer("operator"), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		next.queue(exclusive("db"))
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id), Force: true}))
		next.waitGranted(next.last)
		victim.waitEnded(id, lockkeeper.Revoked)
	}},
	{"R18/a waiting claim at once", revokes | fifo, func(w *world) {
		holder, waiter, op := w.peer("holder"), w.peer("waiter"), w.peer("operator")
		holder.hold(exclusive("db"))
		id := waiter.queue(exclusive("db"))
		w.ok(op.end(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   waiter.ref(id),
			Label: lockkeeper.Label{Note: "too many"},
		}))
		if s := waiter.waitEnded(id, lockkeeper.Revoked); s.Text != "too many" {
			w.Errorf("the text is %q", s.Text)
		}
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: waiter.ref(id)})) // no error: the claim has ended
	}},
	{"R18/present holders don't feel a freeze", freezes | lists | trees, func(w *world) {
		holder, op, next := w.peer("holder"), w.peer("operator"), w.peer("next")
		id := holder.hold(exclusive("db/1")).Ref.ID
		if s := op.ask(freezing("db", time.Hour)); s.State != lockkeeper.Freezing || s.Left <= 0 {
			w.Fatalf("frozen: %+v", s)
		}
		holder.notAsked(id)
		next.refused(exclusive("db/2"))
		next.hold(exclusive("other"))
		next.queue(exclusive("db/2"))
		if s := next.explain(next.last); !slices.Contains(s.Waits, lockkeeper.Frozen) || len(s.Blockers) == 0 {
			w.Errorf("it waits for %v, %+v, want frozen among it", s.Waits, s.Blockers)
		}
		holder.release(id)
		next.stays(next.last, lockkeeper.Waiting)
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}))
		next.waitGranted(next.last)
		w.is(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}), lockkeeper.ErrNotHeld)
	}},
	{"R18/a freeze of the root is one of everything", freezes | lists, func(w *world) {
		root := string(lockkeeper.Root)
		holder, op, one, two := w.peer("holder"), w.peer("operator"), w.peer("one"), w.peer("two")
		id := holder.hold(exclusive("db")).Ref.ID
		behind := one.queue(exclusive("db"))
		if s := op.ask(freezing(root, time.Hour)); s.State != lockkeeper.Freezing || s.Left <= 0 {
			w.Fatalf("frozen: %+v", s)
		}
		if s := holder.explain(id); s.State != lockkeeper.Held || s.Asked != nil {
			w.Errorf("the holder feels the freeze: %+v", s)
		}
		free := two.queue(exclusive("site"))
		two.refused(exclusive("third"))
		if s := two.explain(free); !slices.Contains(s.Waits, lockkeeper.Frozen) || s.Blockers[0].Path != lockkeeper.Root {
			w.Errorf("it waits for %v, %+v, want the freeze of %s", s.Waits, s.Blockers, root)
		}
		holder.release(id)
		if first, second := one.explain(behind), two.explain(free); first.State != lockkeeper.Waiting ||
			second.State != lockkeeper.Waiting {
			w.Errorf("in spite of the freeze they are %s and %s", first.State, second.State)
		}
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: lockkeeper.Root}))
		one.waitGranted(behind)
		two.waitGranted(free)
		w.is(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: lockkeeper.Root}), lockkeeper.ErrNotHeld)
	}},
	{"R18/a freeze of the root ends by itself", freezes, func(w *world) {
		op, one, two := w.peer("operator"), w.peer("one"), w.peer("two")
		const d = 500 * time.Millisecond
		sent := w.now()
		op.ask(freezing(string(lockkeeper.Root), d))
		one.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever})
		two.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("site")}, Wait: forever})
		one.waitGranted(one.last)
		two.waitGranted(two.last)
		w.between("thawed", w.now()-sent, d, d)
	}},
	{"R18/a freeze ends by itself, and outlives its session", freezes, func(w *world) {
		op, next := w.peer("operator"), w.peer("next")
		const d = 500 * time.Millisecond
		sent := w.now()
		op.ask(freezing("db", d))
		op.leave()
		next.waitGranted(next.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever}))
		w.between("thawed", w.now()-sent, d, d)
	}},
	{"R18/a frozen claim is ahead of nobody", freezes | trees | many | fifo, func(w *world) {
		op, frozen, other := w.peer("operator"), w.peer("frozen"), w.peer("other")
		op.ask(freezing("db", time.Hour))
		frozen.queue(exclusive("db/1"), exclusive("site"))
		other.hold(exclusive("site")) // not behind a claim that cannot be granted
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}))
		frozen.stays(frozen.last, lockkeeper.Waiting)
		other.release(other.last)
		frozen.waitGranted(frozen.last)
	}},
	{"R18/a frozen thief asks nobody", freezes | stealing, func(w *world) {
		op, victim, t := w.peer("operator"), w.peer("victim"), w.peer("thief")
		victim.hold(exclusive("db"))
		op.ask(freezing("db", time.Hour))
		t.queueAs(taker(1, 0, exclusive("db")))
		victim.notAsked(victim.last)
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}))
		t.waitGranted(t.last)
	}},
}

// R18: an operator can list everything.
var listChecks = []check{
	{"R18/list holds, then the line, then freezes", lists | ranked, func(w *world) {
		one, two, low, high, op := w.peer("one"), w.peer("two"), w.peer("low"), w.peer("high"), w.peer("operator")
		one.hold(exclusive("a"))
		two.hold(exclusive("b"))
		low.queue(exclusive("a"))
		high.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("a")}, Wait: forever, Priority: 2})
		if w.claims(freezes) {
			op.ask(freezing("c", time.Hour))
		}
		all := op.list(lockkeeper.Query{})
		var got []lockkeeper.Ref
		for _, s := range all {
			got = append(got, s.Ref)
		}
		want := []lockkeeper.Ref{one.ref(1), two.ref(1), high.ref(1), low.ref(1)}
		if len(all) > 1 && all[0].Ref == two.ref(1) && all[0].Ticket <= all[1].Ticket {
			want[0], want[1] = two.ref(1), one.ref(1) // nobody waited for the other, so their tickets may have any order
		}
		if w.claims(freezes) {
			want = append(want, op.ref(1))
		}
		if !slices.Equal(got, want) {
			w.Errorf("listed %v, want %v", got, want)
		}
	}},
	{"R18/list by path, session and claim", lists | trees, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db/1"))
		two.hold(exclusive("db/2"))
		two.hold(exclusive("other"))
		for name, c := range map[string]struct {
			q    lockkeeper.Query
			want int
		}{
			"above":      {lockkeeper.Query{Meets: "db"}, 2},
			"at":         {lockkeeper.Query{Meets: "db/1"}, 1},
			"below":      {lockkeeper.Query{Meets: "db/2/x"}, 1},
			"nowhere":    {lockkeeper.Query{Meets: "d"}, 0},
			"session":    {lockkeeper.Query{Session: two.session.ID}, 2},
			"claim":      {lockkeeper.Query{Ref: two.ref(1)}, 1},
			"no claim":   {lockkeeper.Query{Ref: two.ref(99)}, 0},
			"no session": {lockkeeper.Query{Session: "nobody"}, 0},
		} {
			if all := one.list(c.q); len(all) != c.want {
				w.Errorf("%s: listed %d, want %d: %+v", name, len(all), c.want, all)
			}
		}
	}},
	{"R18/a brief list has the waiters, and not why they wait", lists, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("db"))
		two.queue(exclusive("db"))
		for _, brief := range []bool{true, false} {
			all := one.list(lockkeeper.Query{Session: two.session.ID, Brief: brief})
			if len(all) != 1 || all[0].State != lockkeeper.Waiting {
				w.Fatalf("listed %+v, want the waiter", all)
			}
			if st := all[0]; brief != (st.Position == 0 && len(st.Waits) == 0 && len(st.Blockers) == 0) {
				w.Errorf("brief is %t: listed %+v", brief, st)
			}
		}
	}},
	{"R18/an ended claim can be looked up for a while", lists, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		p.release(p.last)
		if all := w.peer("other").list(lockkeeper.Query{Ref: p.ref(p.last)}); len(all) != 1 ||
			all[0].Reason != lockkeeper.Released {
			w.Errorf("listed %+v, want it ended (released)", all)
		}
	}},
	{"R18/a follower sees every last state", lists, func(w *world) {
		p, watcher := w.peer("one"), w.peer("watcher")
		ctx, cancel := context.WithCancel(w.ctx())
		defer cancel()
		seen := make(chan lockkeeper.Status, 100)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for s, err := range watcher.engine.List(ctx, lockkeeper.Query{Follow: true, Meets: "db"}) {
				if err != nil {
					return
				}
				seen <- s
			}
		}()
		await := func(what string, want func(lockkeeper.Status) bool) {
			w.Helper()
			end := time.After(w.maxWait())
			for {
				select {
				case s := <-seen:
					if want(s) {
						return
					}
				case <-end:
					w.Fatalf("the follower never saw it %s", what)
				}
			}
		}
		p.hold(exclusive("db"))
		await("held", func(s lockkeeper.Status) bool { return s.Ref == p.ref(1) && s.State == lockkeeper.Held })
		p.release(1)
		await("ended", func(s lockkeeper.Status) bool { return s.Ref == p.ref(1) && s.State == lockkeeper.Ended })
		p.hold(exclusive("unrelated"))
		p.hold(exclusive("db"))
		await("held again", func(s lockkeeper.Status) bool { return s.Ref == p.ref(3) && s.State == lockkeeper.Held })
		cancel()
		w.done(stopped, "following after its context ended")
	}},
}
