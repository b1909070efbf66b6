package enginetest

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// R16: every message may arrive twice, late, or after its successor.
var onceChecks = []check{
	{"R16/the same request twice is one claim", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		s := p.hold(exclusive("db"))
		again := p.status(p.last)
		if again.Fence != s.Fence || again.State != lockkeeper.Held || again.Ref != s.Ref {
			w.Errorf("first %+v, then %+v", s, again)
		}
		id := other.queue(exclusive("db"))
		if a, b := other.status(id), other.status(id); a.Ticket != b.Ticket || a.State != b.State {
			w.Errorf("first %+v, then %+v", a, b)
		}
		p.release(p.last)
		other.waitGranted(id)
		other.release(id)
		w.free(exclusive("db")) // no duplicate holds or waits
	}},
	{"R16/the same request at once from many", 0, func(w *world) {
		p := w.peer("one")
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever}
		var answers [8]lockkeeper.Status
		var errs [8]error
		ctx := w.ctx()
		var running sync.WaitGroup
		for i := range answers {
			running.Go(func() { answers[i], errs[i] = p.engine.Claim(ctx, p.key, want) })
		}
		running.Wait()
		for i, s := range answers {
			w.ok(errs[i])
			if s.State != lockkeeper.Held || s.Fence != answers[0].Fence {
				w.Errorf("answer %d: %s with fence %d, the first has %d", i, s.State, s.Fence, answers[0].Fence)
			}
		}
	}},
	{"R16/another request under the same id is refused", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		for _, change := range []func(*lockkeeper.Want){
			func(w *lockkeeper.Want) { w.Targets = []lockkeeper.Target{exclusive("other")} },
			func(w *lockkeeper.Want) { w.Wait = forever },
			func(w *lockkeeper.Want) { w.Note = "another" },
			func(w *lockkeeper.Want) { w.Expected = 1 },
		} {
			want := p.wants[id]
			change(&want)
			_, err := p.engine.Claim(w.ctx(), p.key, want)
			w.is(err, lockkeeper.ErrInvalid)
		}
		p.stays(id, lockkeeper.Held)
		w.free(exclusive("other"))
	}},
	{"R16/an ended id stays ended", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		p.release(id)
		p.release(id) // a duplicate
		if s := p.status(id); s.State != lockkeeper.Ended || s.Reason != lockkeeper.Released {
			w.Errorf("the request came again after the release: %s (%s), want ended (released)", s.State, s.Reason)
		}
		tried := w.peer("other")
		tried.hold(exclusive("db"))
		refused := p.refused(exclusive("db")).Ref.ID
		tried.release(tried.last)
		p.stays(refused, lockkeeper.Ended)
		w.free(exclusive("db"))
	}},
	{"R16/ending what never was", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		id := other.hold(exclusive("db")).Ref.ID
		w.is(p.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}), lockkeeper.ErrNotHeld)
		w.is(p.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1 << 52}), lockkeeper.ErrNotHeld)
		other.stays(id, lockkeeper.Held)
	}},
	{"R16/a stale revision changes nothing", amends | ranked, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		first := p.wants[id]
		raised := first
		raised.Priority, raised.Revision = 4, 2
		p.ask(raised)
		s, err := p.engine.Claim(w.ctx(), p.key, first) // late, after its successor
		w.ok(err)
		if s.Priority != 4 || s.Revision != 2 {
			w.Errorf("a stale revision: %+v, want priority 4 of revision 2", s)
		}
		p.wants[id] = raised
		if s := p.status(id); s.Priority != 4 || s.Revision != 2 {
			w.Errorf("sent twice: %+v", s)
		}
		lowered := raised
		lowered.Priority, lowered.Revision = 1, 3
		_, err = p.engine.Claim(w.ctx(), p.key, lowered)
		w.is(err, lockkeeper.ErrInvalid)
		if s := p.status(id); s.Priority != 4 {
			w.Errorf("lowered to %d", s.Priority)
		}
	}},
	{"R16/renewing and attaching twice", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		p.renew()
		p.renew()
		p.attach(id)
		p.attach(id)
		p.stays(id, lockkeeper.Held)
		p.leave()
		if err := p.end(lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			w.is(err, lockkeeper.ErrSession)
		}
	}},
	{"R16/a stale epoch is refused", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		id := p.hold(exclusive("db")).Ref.ID
		stale := p.key
		p.attach(id)
		if p.key.Epoch <= stale.Epoch {
			w.Errorf("epoch %d after %d", p.key.Epoch, stale.Epoch)
		}
		_, err := p.engine.Renew(w.ctx(), stale)
		w.is(err, lockkeeper.ErrSession)
		_, err = p.engine.Claim(w.ctx(), stale, lockkeeper.Want{ID: 9, Targets: []lockkeeper.Target{exclusive("x")}})
		w.is(err, lockkeeper.ErrSession)
		_, err = p.engine.Claim(w.ctx(), stale, p.wants[id])
		w.is(err, lockkeeper.ErrSession)
		for _, e := range []lockkeeper.Ending{{Kind: lockkeeper.Release, ID: id}, {Kind: lockkeeper.Leave}} {
			w.is(p.engine.End(w.ctx(), stale, e), lockkeeper.ErrSession)
		}
		p.stays(id, lockkeeper.Held)
		other.refused(exclusive("db"))
		w.free(exclusive("x"))
	}},
	{"R19/late calls after leaving make nothing", 0, func(w *world) {
		// Another process ends the session of a dead one with its key. Calls of the dead process arrive
		// after that.
		p := w.peer("dead")
		held := p.hold(exclusive("db")).Ref.ID
		p.leave()
		late := lockkeeper.Want{ID: held + 1, Targets: []lockkeeper.Target{exclusive("x")}, Wait: lockkeeper.Forever}
		refused := func() {
			w.Helper()
			for _, want := range []lockkeeper.Want{p.wants[held], late} {
				_, err := p.engine.Claim(w.ctx(), p.key, want)
				w.is(err, lockkeeper.ErrSession)
			}
			_, err := p.engine.Renew(w.ctx(), p.key)
			w.is(err, lockkeeper.ErrSession)
			w.free(exclusive("db"))
			w.free(exclusive("x"))
		}
		refused()
		again := p.session
		again.Named, again.Epoch = []uint64{held}, p.key.Epoch
		lease, err := p.engine.Attach(w.ctx(), again, nil)
		w.ok(err)
		if lease.Key.Epoch <= p.key.Epoch {
			w.Errorf("attached late under epoch %d, want one after %d", lease.Key.Epoch, p.key.Epoch)
		}
		refused()
		if !w.claims(lists) {
			return // the engine has no List
		}
		if found := p.list(lockkeeper.Query{Session: p.session.ID}); slices.ContainsFunc(
			found, func(s lockkeeper.Status) bool {
				return s.State != lockkeeper.Ended
			}) {
			w.Errorf("the session has %v", found)
		}
	}},
	{"R16/a key of nobody is refused", 0, func(w *world) {
		e := w.handles[0]
		for _, k := range []lockkeeper.Key{{}, {Session: "nobody", Epoch: 1}} {
			_, err := e.Renew(w.ctx(), k)
			w.is(err, lockkeeper.ErrSession)
			_, err = e.Claim(w.ctx(), k, lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{exclusive("db")}})
			w.is(err, lockkeeper.ErrSession)
		}
	}},
	{"R16/two sessions may use the same id", 0, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("a"))
		two.hold(exclusive("b"))
		one.release(one.last)
		two.stays(two.last, lockkeeper.Held)
	}},
}

// R19: a client takes a session over by naming its claims.
var resumeChecks = []check{
	{"R19/what is not named ends", 0, func(w *world) {
		p := w.peer("one")
		kept, dropped := p.hold(exclusive("kept")).Ref.ID, p.hold(exclusive("dropped")).Ref.ID
		w.peer("other").hold(exclusive("taken"))
		waits, gone := p.queue(exclusive("taken")), p.queue(exclusive("taken"))
		p.attach(kept, waits)
		p.stays(kept, lockkeeper.Held)
		p.stays(waits, lockkeeper.Waiting)
		p.waitEnded(dropped, lockkeeper.Superseded)
		p.waitEnded(gone, lockkeeper.Superseded)
		w.free(exclusive("dropped"))
	}},
	{"R19/a claim in flight is named before it is known", 0, func(w *world) {
		p := w.peer("one")
		p.attach(77)
		want := lockkeeper.Want{ID: 77, Targets: []lockkeeper.Target{exclusive("db")}}
		if s := p.ask(want); s.State != lockkeeper.Held {
			w.Errorf("named before it arrived: %s (%s)", s.State, s.Reason)
		}
	}},
	{"R19/a resumed session has its whole TTL", 0, func(w *world) {
		for ttl := w.shortTTL(); !w.resumedLives(ttl); ttl *= 2 { // a busy machine was too slow for this TTL
		}
	}},
	{"R19/named elsewhere, not revived", 0, func(w *world) {
		p := w.renewedPeer("one", w.shortTTL())
		id := p.hold(exclusive("db")).Ref.ID
		next := w.peer("next")
		other := next.queue(exclusive("db"))
		p.dies()
		next.waitGranted(other) // p's session has ended
		p.attach(id)
		for _, s := range p.lease.Claims {
			if s.Ref.ID == id && s.State != lockkeeper.Ended {
				w.Errorf("a claim of an ended session came back: %+v", s)
			}
		}
		next.stays(other, lockkeeper.Held)
	}},
	{"R19/after a restart nothing is lost and nothing comes back", 0, func(w *world) {
		if w.harness.Restart == nil {
			w.Skip("the engine has nothing that could restart")
		}
		w.restarted()
	}},
}

// resumedLives checks that a session which resumes after half of its TTL lives longer than without that.
// It returns false if the machine was too slow for the check to show anything.
func (w *world) resumedLives(ttl time.Duration) bool {
	w.Helper()
	p := w.peerFor(w.name("one"), ttl)
	opened := p.sent
	held := p.hold(exclusive(p.session.ID))
	w.sleep(ttl / 2)
	p.attach(held.Ref.ID)
	late := w.now()-opened >= ttl
	w.sleep(ttl * 6 / 10)
	s, err := p.engine.Claim(w.ctx(), p.key, p.wants[held.Ref.ID])
	if late = late || w.now()-p.sent >= ttl; late {
		return false
	}
	w.ok(err)
	if s.State != lockkeeper.Held || s.Fence != held.Fence {
		w.Errorf("%s after it resumed: %+v, want it held with fence %d", w.now()-p.sent, s, held.Fence)
	}
	return true
}

// restarted checks one restart.
func (w *world) restarted() {
	one, two, three := w.peer("one"), w.peer("two"), w.peer("three")
	held := one.hold(exclusive("held"))
	released := one.hold(exclusive("released"))
	one.release(released.Ref.ID)
	waits := two.queue(exclusive("held"))
	behind := three.queue(exclusive("held"))
	cancelled := three.queue(exclusive("held"))
	three.release(cancelled)

	w.handles[0] = w.harness.Restart(w.T, w.handles[0])
	for _, p := range []*peer{one, two, three} {
		p.engine = w.handles[0]
		_, err := p.engine.Renew(w.ctx(), p.key)
		w.is(err, lockkeeper.ErrSession) // it must resume
	}
	one.attachesLate(0) // the restart does not waive the epoch
	one.attach(held.Ref.ID, released.Ref.ID)
	if s := one.status(held.Ref.ID); s.State != lockkeeper.Held || s.Fence != held.Fence {
		w.Errorf("held before the restart: %+v, want it held with fence %d", s, held.Fence)
	}
	if s := one.status(released.Ref.ID); s.State != lockkeeper.Ended {
		w.Errorf("released before the restart: %+v", s)
	}
	one.release(held.Ref.ID)
	three.attach(behind)
	three.stays(behind, lockkeeper.Waiting) // two keeps its position but has not resumed
	two.attach(waits)
	w.rises(released.Fence, two.waitGranted(waits).Fence)
	two.release(waits)
	three.waitGranted(behind)
}

// Invalid input changes nothing.
var badInputChecks = []check{
	{"BadInput/claims", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		p.hold(exclusive("db"))
		other.queue(exclusive("db"))
		before := w.everything(p)
		for name, change := range badWants {
			want := lockkeeper.Want{ID: 99, Targets: []lockkeeper.Target{exclusive("x")}}
			change(&want)
			s, err := p.engine.Claim(w.ctx(), p.key, want)
			if err == nil {
				w.Errorf("%s is accepted: %+v", name, s)
				continue
			}
			w.isInvalid(name, err, want.Features())
		}
		w.unchanged(before, p)
	}},
	{"BadInput/sessions", 0, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		before := w.everything(p)
		for name, change := range badSessions {
			s := lockkeeper.Session{ID: "bad", TTL: w.longTTL()}
			change(&s)
			if lease, err := p.engine.Attach(w.ctx(), s, nil); err == nil {
				w.Errorf("%s is accepted: %+v", name, lease)
			} else {
				w.isInvalid(name, err, 0)
			}
		}
		w.unchanged(before, p)
	}},
	{"BadInput/endings", 0, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		before := w.everything(p)
		for _, e := range []lockkeeper.Ending{{}, {Kind: 99}, {Kind: lockkeeper.Release}, {Kind: lockkeeper.Revoke},
			{Kind: lockkeeper.Thaw},
			{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "nobody", ID: 1}}, {Kind: lockkeeper.Thaw, Path: "db"}} {
			if err := p.end(e); err == nil {
				w.Errorf("ending %+v is accepted", e)
			}
		}
		w.unchanged(before, p)
	}},
}

// isInvalid fails the check unless err refuses invalid input. For a feature that the engine does not
// claim, ErrUnsupported is right, too.
func (w *world) isInvalid(name string, err error, needs lockkeeper.Features) {
	w.Helper()
	target := lockkeeper.ErrInvalid
	if !w.claims(needs) {
		target = lockkeeper.ErrUnsupported
	}
	if !matches(err, target) && !matches(err, lockkeeper.ErrInvalid) {
		w.Errorf("%s: %v, want %v", name, err, target)
	}
}

// everything returns the whole state of the engine, without the fields that change by themselves.
func (w *world) everything(p *peer) []lockkeeper.Status {
	w.Helper()
	if !w.claims(lists) {
		return nil
	}
	all := p.list(lockkeeper.Query{})
	for i := range all {
		all[i].Age, all[i].Left, all[i].ETA = 0, 0, 0
		for k := range all[i].Blockers {
			all[i].Blockers[k].Age, all[i].Blockers[k].Left = 0, 0
		}
	}
	return all
}

// unchanged fails the check if the state of the engine has changed.
func (w *world) unchanged(before []lockkeeper.Status, p *peer) {
	w.Helper()
	if after := w.everything(p); !reflect.DeepEqual(before, after) {
		w.Errorf("bad input changed the state:\nbefore %+v\nafter  %+v", before, after)
	}
	if s := p.status(p.last); s.State != lockkeeper.Held {
		w.Errorf("the hold is %s (%s)", s.State, s.Reason)
	}
}
