package enginetest

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// R11: a session without renewals ends, and no other session ends with it.
var leaseChecks = []check{
	{"R11/a session that is not renewed ends, not before its TTL", 0, func(w *world) { w.expiry(w.shortTTL()) }},
	{"R11/a longer TTL is kept whole", 0, func(w *world) { w.expiry(3 * w.shortTTL()) }},
	{"R11/one renewal serves all claims", 0, func(w *world) {
		p, other := w.renewedPeer("renewed", w.shortTTL()), w.peer("other")
		a, b := p.hold(exclusive("a")).Ref.ID, p.hold(exclusive("b")).Ref.ID
		other.hold(exclusive("c"))
		c := p.queue(exclusive("c"))
		w.sleep(2 * w.shortTTL())
		p.stays(a, lockkeeper.Held)
		p.stays(b, lockkeeper.Held)
		p.stays(c, lockkeeper.Waiting)
	}},
	{"R11/a shorter TTL takes back nothing that was promised", 0, func(w *world) {
		p := w.peer("promised")
		id := p.hold(exclusive("db")).Ref.ID
		p.session.TTL = w.shortTTL()
		if lease := p.attach(id); lease.TTL <= w.shortTTL() || lease.TTL > w.longTTL() {
			w.Errorf("the lease is for %s, want what is left of %s", lease.TTL, w.longTTL())
		}
		p.renew()
		w.sleep(w.shortTTL() + 100*time.Millisecond)
		p.stays(id, lockkeeper.Held)
	}},
	{"R11/a place in line is perishable", fifo, func(w *world) {
		holder, dead, next := w.peer("holder"), w.renewedPeer("dead", w.shortTTL()), w.peer("next")
		holder.hold(exclusive("db"))
		dead.queue(exclusive("db"))
		next.queue(exclusive("db"))
		dead.dies()
		holder.release(holder.last)
		// The dead session may hold the lock now or may have left the queue: next gets the lock in
		// both cases.
		next.waitGranted(next.last)
		dead.sessionGone()
	}},
	{"R11/leaving ends all at once", fifo, func(w *world) {
		p, other := w.peer("leaver"), w.peer("other")
		other.hold(exclusive("b"))
		p.hold(exclusive("a"))
		p.queue(exclusive("b"))
		next := w.peer("next")
		a := next.queue(exclusive("a"))
		b := next.queue(exclusive("b"))
		p.leave()
		next.waitGranted(a)
		other.release(other.last)
		next.waitGranted(b)
		p.sessionGone()
	}},
	{"R11/a longest hold ends as overdue", maxHold, func(w *world) {
		p, next := w.peer("holder"), w.peer("next")
		const most, grace = 400 * time.Millisecond, 2 * time.Second // a busy machine needs part of it to see the ask
		began := w.now()
		id := p.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, MaxHold: most, Grace: grace}).Ref.ID
		next.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever})
		asked := p.waitAsked(id)
		w.between("asked to yield", w.now()-began, most, most)
		if asked.Reason != lockkeeper.Overdue || asked.Left > grace || asked.By != (lockkeeper.Ref{}) {
			w.Errorf("asked %+v, want overdue with at most %s left", asked, grace)
		}
		next.waitGranted(next.last)
		w.between("granted", w.now()-began, most+grace, most+grace)
		p.waitEnded(id, lockkeeper.Overdue)
	}},
	{"R11/a longest hold ends also without anybody waiting", maxHold, func(w *world) {
		p := w.peer("holder")
		id := p.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, MaxHold: 200 * time.Millisecond}).Ref.ID
		p.waitEnded(id, lockkeeper.Overdue)
		w.free(exclusive("db"))
	}},
	{"R11/an overdue hold that is given back has yielded", maxHold, func(w *world) {
		p := w.peer("holder")
		id := p.holdAs(lockkeeper.Want{
			Targets: []lockkeeper.Target{exclusive("db")},
			MaxHold: 200 * time.Millisecond,
			Grace:   time.Minute,
		}).Ref.ID
		p.waitAsked(id)
		p.release(id)
		p.waitEnded(id, lockkeeper.Yielded)
	}},
	{"R11/no TTL only where that is claimed", 0, func(w *world) {
		_, err := w.handles[0].Attach(w.ctx(), lockkeeper.Session{ID: "without end"}, nil)
		if w.guarantees.NoExpiry != (err == nil) {
			w.Errorf("a session without a TTL: %v, and NoExpiry is %v", err, w.guarantees.NoExpiry)
		}
		if err != nil {
			w.is(err, lockkeeper.ErrInvalid)
			return
		}
		p := w.peerFor("for as long as the program lives", 0)
		id := p.hold(exclusive("db")).Ref.ID
		w.sleep(2 * w.shortTTL())
		p.stays(id, lockkeeper.Held)
	}},
}

// expiry lets a session with the given TTL expire while it holds and another one waits.
func (w *world) expiry(ttl time.Duration) {
	w.Helper()
	dead, next := w.peerFor("dead", ttl), w.peer("next")
	began := w.now()
	dead.renew()
	dead.hold(exclusive("db"))
	s := next.waitGranted(next.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever}))
	w.between("granted", w.now()-began, ttl, ttl)
	if s.Unconfirmed {
		w.Error("the last promise to the dead session has passed, and yet the grant is unconfirmed")
	}
	dead.sessionGone()
}

// R12: a holder knows of its loss before the engine grants another client.
var notifiedChecks = []check{
	{"R12/a renewal states every end", maxHold, func(w *world) {
		p := w.peer("holder")
		id := p.holdAs(lockkeeper.Want{
			Targets: []lockkeeper.Target{exclusive("db")},
			MaxHold: 10 * time.Second,
			Grace:   5 * time.Second,
		}).Ref.ID
		w.sleep(100 * time.Millisecond)
		s := p.renewalShows(id, "ending some time", func(s lockkeeper.Status) bool { return s.Left != forever })
		if s.Left > 15*time.Second || s.Left < 15*time.Second-100*time.Millisecond-w.tolerance() {
			w.Errorf("%s left of 15s", s.Left)
		}
	}},
	{"R12/an ended claim is told for a TTL", revokes, func(w *world) {
		p, op := w.peer("holder"), w.peer("operator")
		id := p.hold(exclusive("db")).Ref.ID
		w.ok(op.end(lockkeeper.Ending{
			Kind:  lockkeeper.Revoke,
			Ref:   p.ref(id),
			Force: true,
			Label: lockkeeper.Label{Note: "maintenance"},
		}))
		s := p.renewalShows(id, "ended", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Ended })
		if s.Reason != lockkeeper.Revoked || s.Text != "maintenance" {
			w.Errorf("ended as %s (%q), want revoked (maintenance)", s.Reason, s.Text)
		}
	}},
	{"R12/forced, so unconfirmed, until the victim knows", revokes | fifo, func(w *world) {
		victim, op, next := w.peer("victim"), w.peer("operator"), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		first := next.queue(exclusive("db"))
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id), Force: true}))
		if s := next.waitGranted(first); !s.Unconfirmed {
			w.Error("granted before the victim could know, and yet confirmed")
		}
		next.release(first)
		if s := next.hold(exclusive("db")); !s.Unconfirmed {
			w.Error("the victim does not know yet, and yet the next grant is confirmed")
		}
		next.release(next.last)
		victim.release(id) // it knows of its end
		if s := next.hold(exclusive("db")); s.Unconfirmed {
			w.Error("the victim released, and yet the grant is unconfirmed")
		}
	}},
	{"R12/taken sooner than promised, so unconfirmed", stealing, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		victim.hold(exclusive("db"))
		if s := t.waitGranted(t.request(taker(1, 200*time.Millisecond, exclusive("db")))); !s.Unconfirmed {
			w.Error("the victim's lease states a whole TTL and no end, but the grant is confirmed")
		}
	}},
	{"R12/others are not haunted", revokes, func(w *world) {
		victim, op, other := w.peer("victim"), w.peer("operator"), w.peer("other")
		id := victim.hold(exclusive("db")).Ref.ID
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id), Force: true}))
		if s := other.hold(exclusive("elsewhere")); s.Unconfirmed {
			w.Error("it conflicts with no claim, but it is unconfirmed")
		}
	}},
	{"R12/a victim that resumes without it knows", revokes, func(w *world) {
		victim, op, next := w.peer("victim"), w.peer("operator"), w.peer("next")
		id := victim.hold(exclusive("db")).Ref.ID
		w.ok(op.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: victim.ref(id), Force: true}))
		victim.attach()
		if s := next.hold(exclusive("db")); s.Unconfirmed {
			w.Error("the victim has resumed without it, and yet the grant is unconfirmed")
		}
	}},
}

// R13: fences rise with every grant.
var fenceChecks = []check{
	{"R13/larger than any before", fences, func(w *world) {
		highest := make(map[string]uint64)
		for i := range 20 {
			p, path := w.peer("one"), []string{"a", "b", "c"}[i%3]
			scope := path
			if w.guarantees.FenceScope == lockkeeper.FencesOverAll {
				scope = ""
			}
			s := p.hold(exclusive(path))
			if s.Fence <= highest[scope] || s.Fence >= 1<<53 {
				w.Fatalf("grant %d has fence %d after %d", i, s.Fence, highest[scope])
			}
			if again := p.status(p.last); again.Fence != s.Fence {
				w.Fatalf("the same grant has fence %d, then %d", s.Fence, again.Fence)
			}
			highest[scope] = s.Fence
			if i%2 == 0 {
				p.release(p.last)
			} else {
				p.leave()
			}
		}
	}},
	{"R13/an upgrade gets a new one, a downgrade keeps its own", amends | shares | fences, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		s := p.hold(shared("db"))
		id := s.Ref.ID
		highest := s.Fence
		if o := other.hold(exclusive("elsewhere")); w.guarantees.FenceScope == lockkeeper.FencesOverAll {
			highest = o.Fence
		}
		up := p.convert(id, exclusive("db"))
		if up.State != lockkeeper.Held || up.Grants[0].Mode != lockkeeper.ModeExclusive || up.Fence <= highest {
			w.Fatalf("upgraded: %+v, want it exclusive with a fence above %d", up, highest)
		}
		down := p.convert(id, shared("db"))
		if down.Fence != up.Fence || down.Grants[0].Mode != lockkeeper.ModeShared {
			w.Errorf("downgraded: %+v, want it shared with fence %d", down, up.Fence)
		}
	}},
	{"R13/kept in the answer of an ended claim", fences, func(w *world) {
		p := w.peer("one")
		s := p.hold(exclusive("db"))
		p.release(p.last)
		if e := p.waitEnded(p.last, lockkeeper.Released); e.Fence != s.Fence {
			w.Errorf("ended with fence %d, held with %d", e.Fence, s.Fence)
		}
		never := p.refusedWhileHeld()
		if never.Fence != 0 {
			w.Errorf("never granted, and yet fence %d", never.Fence)
		}
	}},
}

// refusedWhileHeld requests a held target without a wait.
func (p *peer) refusedWhileHeld() lockkeeper.Status {
	p.Helper()
	p.peer("holder").hold(exclusive("held"))
	return p.refused(exclusive("held"))
}

// convert amends the claim to the given targets, and waits.
func (p *peer) convert(id uint64, targets ...lockkeeper.Target) lockkeeper.Status {
	p.Helper()
	s, err := p.tryConvert(id, targets...)
	p.ok(err)
	return s
}

func (p *peer) tryConvert(id uint64, targets ...lockkeeper.Target) (lockkeeper.Status, error) {
	last := p.last
	defer func() { p.last = last }()
	want := p.wants[id]
	want.Targets, want.Wait = targets, forever
	want.Revision++
	s, err := p.send(want)
	if errors.Is(err, lockkeeper.ErrInvalid) {
		want.Revision--
		p.wants[id] = want
	}
	return s, err
}
