package enginetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const converts = amends | shares

// R14: a hold converts its mode.
var convertChecks = []check{
	{"R14/an upgrade goes ahead of every waiter", converts | fifo, func(w *world) {
		one, two, writer := w.peer("one"), w.peer("two"), w.peer("writer")
		id := one.hold(shared("db")).Ref.ID
		two.hold(shared("db"))
		writer.queue(exclusive("db"))
		s := one.convert(id, exclusive("db"))
		if s.State != lockkeeper.Held || !s.Converting || s.Grants[0].Mode != lockkeeper.ModeShared {
			w.Fatalf("upgrading: %+v, want it held shared and converting", s)
		}
		two.release(two.last)
		one.await(id, "exclusive", func(s lockkeeper.Status) bool {
			return s.State == lockkeeper.Held && !s.Converting && s.Grants[0].Mode == lockkeeper.ModeExclusive
		})
		writer.stays(writer.last, lockkeeper.Waiting)
		one.release(id)
		writer.waitGranted(writer.last)
	}},
	{"R14/an upgrade that is taken back leaves it shared", converts | fifo, func(w *world) {
		one, two, writer := w.peer("one"), w.peer("two"), w.peer("writer")
		id := one.hold(shared("db")).Ref.ID
		two.hold(shared("db"))
		one.convert(id, exclusive("db"))
		writer.queue(exclusive("db"))
		if s := one.convert(id, shared("db")); s.State != lockkeeper.Held || s.Converting {
			w.Fatalf("taken back: %+v, want it held shared", s)
		}
		two.release(two.last)
		s := one.stays(id, lockkeeper.Held)
		if s.Grants[0].Mode != lockkeeper.ModeShared {
			w.Errorf("taken back, and yet granted later: %+v", s)
		}
		one.release(id)
		writer.waitGranted(writer.last)
	}},
	{"R14/an upgrade waits as long as it wants", converts, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		id := one.hold(shared("db")).Ref.ID
		two.hold(shared("db"))
		want := one.wants[id]
		want.Targets, want.Revision, want.Wait = []lockkeeper.Target{exclusive("db")}, 1, 200*time.Millisecond
		one.ask(want)
		s := one.await(id, "no longer converting", func(s lockkeeper.Status) bool { return !s.Converting })
		if s.State != lockkeeper.Held || s.Grants[0].Mode != lockkeeper.ModeShared || s.Reason != lockkeeper.TimedOut {
			w.Errorf("the upgrade that timed out: %+v, want it held shared, timed out", s)
		}
	}},
	{"R14/a downgrade is at once and lets readers in", converts | fifo, func(w *world) {
		one, reader, writer := w.peer("one"), w.peer("reader"), w.peer("writer")
		id := one.hold(exclusive("db")).Ref.ID
		reader.queue(shared("db"))
		writer.queue(exclusive("db"))
		if s := one.convert(id, shared("db")); s.State != lockkeeper.Held || s.Grants[0].Mode != lockkeeper.ModeShared {
			w.Fatalf("downgraded: %+v", s)
		}
		reader.waitGranted(reader.last)
		writer.stays(writer.last, lockkeeper.Waiting)
		one.release(id)
		reader.release(reader.last)
		writer.waitGranted(writer.last)
	}},
	{"R14/a soft writer's hold is downgraded like any other", converts | softWriters, func(w *world) {
		h, err := w.client("writer").Lock(w.ctx(), "db", lockkeeper.WithSoft(0))
		w.ok(err)
		w.ok(h.Downgrade(w.ctx()))
		w.peer("reader").hold(shared("db"))
		w.is(h.Upgrade(w.ctx(), lockkeeper.WithWait(0)), lockkeeper.ErrNotAcquired)
		w.ok(h.Err())
	}},
	{"R14/only as a whole", converts | many, func(w *world) {
		p := w.peer("one")
		id := p.hold(shared("a"), shared("b")).Ref.ID
		for _, targets := range [][]lockkeeper.Target{
			{exclusive("a"), shared("b")}, {exclusive("a")}, {exclusive("a"), exclusive("c")},
			{exclusive("a"), exclusive("b"), exclusive("c")},
		} {
			_, err := p.tryConvert(id, targets...)
			w.is(err, lockkeeper.ErrInvalid)
		}
		if s := p.convert(id, exclusive("a"), exclusive("b")); s.State != lockkeeper.Held || s.Converting {
			w.Errorf("upgraded as a whole: %+v", s)
		}
	}},
}

// R15: a wait that could never end is refused.
var deadlockChecks = []check{
	{"R15/two who hold what the other wants", deadlocks, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		a, b := one.hold(exclusive("a")).Ref, two.hold(exclusive("b")).Ref
		first := one.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("b")}, Wait: forever, Inside: a})
		s := two.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("a")}, Wait: forever, Inside: b})
		second := two.last
		if s.State == lockkeeper.Waiting {
			s = two.waitEnded(second, lockkeeper.Deadlock)
		}
		if s.Reason != lockkeeper.Deadlock {
			w.Fatalf("the younger one: %s (%s), want it refused as a deadlock", s.State, s.Reason)
		}
		if !strings.Contains(s.Text, one.session.ID) || !strings.Contains(s.Text, two.session.ID) {
			w.Errorf("the deadlock is described as %q, want both claims", s.Text)
		}
		one.stays(first, lockkeeper.Waiting)
		two.release(b.ID)
		one.waitGranted(first)
	}},
	{"R15/three in a ring", deadlocks, func(w *world) {
		paths := []string{"a", "b", "c"}
		var ring []*peer
		var outer []lockkeeper.Ref
		for _, path := range paths {
			p := w.peer("ring")
			outer = append(outer, p.hold(exclusive(path)).Ref)
			ring = append(ring, p)
		}
		for i, p := range ring {
			s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive(paths[(i+1)%3])}, Wait: forever, Inside: outer[i]})
			if i < 2 && s.State != lockkeeper.Waiting {
				w.Fatalf("%d: %s (%s), nothing is knotted yet", i, s.State, s.Reason)
			}
		}
		ring[2].waitEnded(ring[2].last, lockkeeper.Deadlock)
		ring[2].release(outer[2].ID)
		ring[1].waitGranted(ring[1].last)
	}},
	{"R15/two upgrades of one lock", deadlocks | converts, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		a, b := one.hold(shared("db")).Ref.ID, two.hold(shared("db")).Ref.ID
		one.convert(a, exclusive("db"))
		s := two.convert(b, exclusive("db"))
		if s.Converting {
			s = two.await(b, "no longer converting", func(s lockkeeper.Status) bool { return !s.Converting })
		}
		if s.State != lockkeeper.Held || s.Reason != lockkeeper.Deadlock || s.Grants[0].Mode != lockkeeper.ModeShared {
			w.Fatalf("the younger upgrade: %+v, want it held shared, refused as a deadlock", s)
		}
		two.release(b)
		one.await(a, "exclusive", func(s lockkeeper.Status) bool { return s.Grants[0].Mode == lockkeeper.ModeExclusive })
	}},
	{"R15/no false alarm", deadlocks | shares, func(w *world) {
		// The holder of b waits for a, whose holder does not wait.
		one, two, three := w.peer("one"), w.peer("two"), w.peer("three")
		a := one.hold(exclusive("a")).Ref
		b := two.hold(exclusive("b")).Ref
		waits := two.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("a")}, Wait: forever, Inside: b})
		three.queue(exclusive("b"))
		// The first session waits for b too, but not inside its hold of a.
		other := one.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{shared("b")}, Wait: forever})
		one.stays(other, lockkeeper.Waiting)
		two.stays(waits, lockkeeper.Waiting)
		one.release(a.ID)
		two.waitGranted(waits)
	}},
	{"R15/permits that nobody can free", deadlocks | counts, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		a, b := one.hold(permits("k", 1, 2)).Ref, two.hold(permits("k", 1, 2)).Ref
		one.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{permits("k", 1, 2)}, Wait: forever, Inside: a})
		s := two.ask(lockkeeper.Want{Targets: []lockkeeper.Target{permits("k", 1, 2)}, Wait: forever, Inside: b})
		if s.State == lockkeeper.Waiting {
			s = two.waitEnded(two.last, lockkeeper.Deadlock)
		}
		if s.Reason != lockkeeper.Deadlock {
			w.Errorf("both hold a unit and want another: %s (%s), want a deadlock", s.State, s.Reason)
		}
	}},
	{"R15/a bounded wait is refused too, not left to time out", deadlocks, func(w *world) {
		p := w.peer("one")
		a := p.hold(exclusive("a")).Ref
		s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("a")}, Wait: time.Hour, Inside: a})
		if s.State == lockkeeper.Waiting {
			s = p.waitEnded(p.last, lockkeeper.Deadlock)
		}
		if s.Reason != lockkeeper.Deadlock {
			w.Errorf("waiting for oneself: %s (%s), want a deadlock", s.State, s.Reason)
		}
	}},
	{"R15/siblings wait for each other", deadlocks, func(w *world) {
		p, q := w.peer("one"), w.peer("two")
		site := p.hold(exclusive("site")).Ref
		inSite := lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever, Inside: site}
		first := p.holdAs(inSite).Ref
		second, third := p.queueAs(inSite), q.queueAs(inSite) // in the same session, and in another
		p.stays(second, lockkeeper.Waiting)
		q.stays(third, lockkeeper.Waiting)
		p.release(first.ID)
		p.waitGranted(second)
		p.release(second)
		q.waitGranted(third)
	}},
	{"R15/siblings of one context wait for each other", 0, func(w *world) {
		c := w.client("make")
		site, err := c.Lock(w.ctx(), "site")
		w.ok(err)
		first, err := c.Lock(site.Context(), "db")
		w.ok(err)
		second, err := c.Enqueue(site.Context(), lockkeeper.Exclusive("db"))
		w.ok(err)
		w.ok(first.Release(w.ctx()))
		h, err := second.Wait(w.ctx())
		w.ok(err)
		w.ok(h.Release(w.ctx()))
		w.ok(site.Release(w.ctx()))
	}},
	{"R15/a tree of three levels", deadlocks, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		site, pool := one.hold(exclusive("site")).Ref, two.hold(exclusive("pool")).Ref
		db := one.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Inside: site}).Ref
		deep := one.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("pool")}, Wait: forever, Inside: db})
		for _, path := range []string{"site", "db"} {
			s := two.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive(path)}, Wait: forever, Inside: pool})
			if s.State == lockkeeper.Waiting {
				s = two.waitEnded(two.last, lockkeeper.Deadlock)
			}
			if s.Reason != lockkeeper.Deadlock {
				w.Errorf("waiting for %s, inside which somebody waits for the waiter: %s (%s), want a deadlock", path, s.State,
					s.Reason)
			}
		}
		two.release(pool.ID)
		one.waitGranted(deep)
	}},
	{"R15/case T3.6j waiting for what is held around oneself", deadlocks | trees, func(w *world) {
		p := w.peer("me")
		lunch := p.hold(exclusive("lunch")).Ref
		s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("lunch/1")}, Wait: forever, Inside: lunch})
		if s.State == lockkeeper.Waiting {
			s = p.waitEnded(p.last, lockkeeper.Deadlock)
		}
		if s.State != lockkeeper.Ended || s.Reason != lockkeeper.Deadlock {
			w.Errorf("%s (%s), want it refused as a deadlock", s.State, s.Reason)
		}
		other := w.peer("someone else")
		other.queue(exclusive("lunch/1")) // two sessions that wait for each other
		p.release(lunch.ID)
		other.waitGranted(other.last)
	}},
}

// R17: every wait has reasons.
var reasonChecks = []check{
	{"R17/held by, and behind", fifo | lists, func(w *world) {
		holder, first, second := w.peer("holder"), w.peer("first"), w.peer("second")
		want := lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}}
		want.As, want.Note, want.Link = "ana", "migration", "https://ci/7"
		holder.holdAs(want)
		s := first.explain(first.queue(exclusive("db")))
		if !slices.Equal(s.Waits, []lockkeeper.WaitReason{lockkeeper.HeldBy}) || len(s.Blockers) == 0 {
			w.Fatalf("the first waits for %v, %v", s.Waits, s.Blockers)
		}
		if b := s.Blockers[0]; b.Ref != holder.ref(holder.last) || b.Why != lockkeeper.HeldBy || b.As != "ana" ||
			b.Note != "migration" || b.Link != "https://ci/7" || b.Path != "db" {
			w.Errorf("the blocker is %+v", b)
		}
		s = second.explain(second.queue(exclusive("db")))
		if !slices.Equal(s.Waits, []lockkeeper.WaitReason{lockkeeper.HeldBy, lockkeeper.Behind}) {
			w.Errorf("the second waits for %v, want held by and behind", s.Waits)
		}
	}},
	{"R17/a wait is told how long holds lately lasted", fifo | lists | estimates, func(w *world) {
		p, first, second := w.peer("holder"), w.peer("first"), w.peer("second")
		p.hold(exclusive("db"))
		if s := first.explain(first.queue(exclusive("db"))); s.ETA != 0 {
			w.Errorf("an estimate of %s without any earlier hold", s.ETA)
		}
		first.release(first.last)
		for tries := 0; ; tries++ { // on a busy machine the second hold may last longer than the first
			w.sleep(500 * time.Millisecond)
			p.release(p.last)
			p.hold(exclusive("db"))
			one := first.explain(first.queue(exclusive("db")))
			two := second.explain(second.queue(exclusive("db")))
			if one.ETA > 0 && two.ETA > one.ETA {
				return
			}
			if tries == 20 || w.harness.Bubble {
				w.Fatalf("after holds of half a second: an estimate of %s for the first waiter, %s for the second",
					one.ETA, two.ETA)
			}
			first.release(first.last)
			second.release(second.last)
		}
	}},
	{"R17/an announced hold tells how long a wait would have been", fifo | lists, func(w *world) {
		w.peer("holder").holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Expected: time.Hour})
		c := w.client("trier")
		_, err := c.TryLock(w.ctx(), "db")
		var e *lockkeeper.Error
		if !errors.As(err, &e) || e.Position != 1 || e.ETA <= time.Hour/2 || e.ETA > time.Hour {
			w.Errorf("a refused try has %v: %+v, want position 1 and about an hour", err, e)
		}
		pending, err := c.Enqueue(w.ctx(), lockkeeper.Exclusive("db"))
		w.ok(err)
		s, err := pending.Status(w.ctx())
		w.ok(err)
		if s.Position != 1 || s.ETA <= time.Hour/2 || s.ETA > time.Hour {
			w.Errorf("in the queue: position %d, estimate %s", s.Position, s.ETA)
		}
		_, err = c.Lock(w.ctx(), "db", lockkeeper.WithWait(time.Minute))
		if !errors.As(err, &e) || e.Reason != lockkeeper.TimedOut || e.Position != 2 || e.ETA != 0 {
			w.Errorf("a hopeless wait behind a hold without an estimate has %v: %+v", err, e)
		}
	}},
	{"R17/ends by their own hand", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		held := p.hold(exclusive("db")).Ref.ID
		waiting := other.queue(exclusive("db"))
		other.release(waiting)
		other.waitEnded(waiting, lockkeeper.Cancelled)
		p.release(held)
		p.waitEnded(held, lockkeeper.Released)
	}},
	{"R17/an empty engine lists nothing", lists, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		p.release(p.last)
		if all := p.list(lockkeeper.Query{}); len(all) != 0 {
			w.Errorf("nothing is held, and yet listed: %+v", all)
		}
	}},
}
