package enginetest

import (
	"math"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// thief wants the targets and asks their holders to yield.
func thief(priority int, targets ...lockkeeper.Target) lockkeeper.Want {
	return lockkeeper.Want{Targets: targets, Wait: forever, Priority: priority, Steal: lockkeeper.Ask}
}

// taker wants the targets, asks their holders, and takes them after d.
func taker(priority int, d time.Duration, targets ...lockkeeper.Target) lockkeeper.Want {
	return lockkeeper.Want{Targets: targets, Wait: forever, Priority: priority, Steal: lockkeeper.Take, After: d}
}

const stealing = steals | ranked

// R10: urgent claims ask holders to yield.
var stealChecks = []check{
	{"R10/asked politely, told by whom, and granted on release", stealing, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		want := thief(1, exclusive("db"))
		want.As, want.Note = "ana", "urgent"
		t.queueAs(want)
		asked := victim.waitAsked(id)
		if asked.By != t.ref(t.last) || asked.As != "ana" || asked.Note != "urgent" || asked.Reason != lockkeeper.Stolen ||
			asked.Left != forever {
			w.Errorf("the victim gets %+v", asked)
		}
		if s := t.explain(t.last); w.claims(lists) && !slices.Contains(s.Waits, lockkeeper.AskedToYield) {
			w.Errorf("the thief waits for %v, want asked to yield among it", s.Waits)
		}
		victim.release(id)
		if s := t.waitGranted(t.last); s.Unconfirmed {
			w.Error("the victim released, and yet the grant is unconfirmed")
		}
		victim.waitEnded(id, lockkeeper.Yielded)
	}},
	{"R10/equals and superiors are not robbed", stealing, func(w *world) {
		for _, priority := range []int{1, 2} {
			victim, t := w.peer("victim"), w.peer("thief")
			path := w.name("db")
			victim.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive(path)}, Priority: priority})
			t.queueAs(taker(1, 0, exclusive(path)))
			victim.notAsked(victim.last)
			t.stays(t.last, lockkeeper.Waiting)
		}
	}},
	{"R10/who does not ask to steal only waits", stealing, func(w *world) {
		victim, p := w.peer("victim"), w.peer("patient")
		victim.hold(exclusive("db"))
		p.queueAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever, Priority: 9})
		victim.notAsked(victim.last)
	}},
	{"R10/a try asks nobody", stealing, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		victim.hold(exclusive("db"))
		want := taker(1, 0, exclusive("db"))
		want.Wait = 0
		if s := t.ask(want); s.State != lockkeeper.Ended || s.Reason != lockkeeper.TimedOut {
			w.Errorf("a thief that does not wait: %s (%s)", s.State, s.Reason)
		}
		victim.notAsked(victim.last)
	}},
	{"R10/taken after the bound", stealing, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		const after = 2 * time.Second // time enough for the victim's acknowledgement
		sent := w.now()
		t.queueAs(taker(1, after, exclusive("db")))
		if asked := victim.waitAsked(id); asked.Left > after || asked.Left <= 0 {
			w.Errorf("the victim has %s left, want at most %s", asked.Left, after)
		}
		victim.renewUntil(t.grantedNow(t.last)) // of several servers, the last may ask it later
		s := t.waitGranted(t.last)
		w.between("taken", w.now()-sent, after, after)
		if s.Unconfirmed {
			w.Error("the victim was notified in time, but the grant is unconfirmed")
		}
		victim.waitEnded(id, lockkeeper.Stolen)
		victim.release(id) // too late: it changes nothing
		t.stays(t.last, lockkeeper.Held)
	}},
	{"R10/never later than the victim's TTL", stealing, func(w *world) {
		victim, t := w.renewedPeer("victim", w.shortTTL()), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		t.queueAs(taker(1, time.Hour, exclusive("db")))
		if asked := victim.waitAsked(id); asked.Left > w.shortTTL() {
			w.Errorf("the victim has %s left, want at most its TTL", asked.Left)
		}
		t.waitGranted(t.last)
		victim.waitEnded(id, lockkeeper.Stolen)
	}},
	{"R10/taken after a part of the victim's TTL", stealing, func(w *world) {
		ttl := 2 * w.shortTTL()
		victim, t := w.renewedPeer("victim", ttl), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		want := taker(1, 0, exclusive("db"))
		want.AfterTTL = 600
		after := ttl * 6 / 10
		sent := w.now()
		t.queueAs(want)
		if asked := victim.waitAsked(id); asked.Left > after || asked.Left <= 0 {
			w.Errorf("the victim has %s left, want at most 0.6 of its TTL, %s", asked.Left, after)
		}
		victim.renewUntil(t.grantedNow(t.last)) // of several servers, the last may ask it later
		s := t.waitGranted(t.last)
		w.between("taken", w.now()-sent, after, after)
		if s.Unconfirmed {
			w.Error("the victim was notified in time, but the grant is unconfirmed")
		}
		victim.waitEnded(id, lockkeeper.Stolen)
	}},
	{"R10/parts of the TTL through the client", stealing, func(w *world) {
		c := w.client("client")
		for _, factor := range []float64{0, -0.5, 1.001, 0.0004, math.NaN(), math.Inf(1)} {
			_, err := c.Lock(w.ctx(), "db", lockkeeper.WithPriority(1), lockkeeper.WithStealAfterTTL(factor))
			w.is(err, lockkeeper.ErrInvalid)
		}
		victim := w.renewedPeer("victim", w.shortTTL())
		victim.hold(exclusive("db"))
		sent := w.now()
		h, err := c.Lock(w.ctx(), "db", lockkeeper.WithPriority(1), lockkeeper.WithStealAfterTTL(0.5))
		w.ok(err)
		w.between("taken", w.now()-sent, w.shortTTL()/2, w.shortTTL()/2)
		w.ok(h.Release(w.ctx()))
	}},
	{"R10/taken after the whole TTL while nothing is measured", stealing | measured, func(w *world) {
		victim, t := w.renewedPeer("victim", w.shortTTL()), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		sent := w.now()
		t.queueAs(taker(1, lockkeeper.AfterMeasured, exclusive("db")))
		asked := victim.waitAsked(id)
		// Left counts from when the renewal was sent, which is after the thief asked.
		if least := w.shortTTL() - 2*(w.now()-sent) - 10*time.Millisecond; asked.Left > w.shortTTL() || asked.Left < least {
			w.Errorf("the victim has %s left, want its TTL", asked.Left)
		}
		t.waitGranted(t.last)
		w.between("taken", w.now()-sent, w.shortTTL(), w.shortTTL()+w.shortTTL()/20) // clocks may differ in rate
		victim.waitEnded(id, lockkeeper.Stolen)
	}},
	{"R10/nobody is robbed without effect", stealing | shares, func(w *world) {
		low, high, t := w.peer("low"), w.peer("high"), w.peer("thief")
		low.hold(shared("db"))
		high.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{shared("db")}, Priority: 5})
		t.queueAs(taker(1, 0, exclusive("db")))
		low.notAsked(low.last)
		high.notAsked(high.last)
		high.release(high.last) // now a yield would help
		t.waitGranted(t.last)
		low.waitEnded(low.last, lockkeeper.Stolen)
	}},
	{"R10/withdrawn when the thief gives up", stealing, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		t.queueAs(taker(1, 10*time.Second, exclusive("db")))
		victim.waitAsked(id)
		t.release(t.last)
		victim.renewalShows(id, "no longer asked", func(s lockkeeper.Status) bool { return s.Asked == nil })
		victim.release(id)
		victim.waitEnded(id, lockkeeper.Released)
	}},
	{"R10/a higher thief goes first", stealing, func(w *world) {
		victim, low, high := w.peer("victim"), w.peer("low thief"), w.peer("high thief")
		id := victim.hold(exclusive("db")).Ref.ID
		low.queueAs(thief(1, exclusive("db")))
		victim.waitAsked(id)
		high.queueAs(thief(2, exclusive("db")))
		victim.renewalShows(id, "asked by the higher thief", func(s lockkeeper.Status) bool {
			return s.Asked != nil &&
				s.Asked.By == high.ref(high.last)
		})
		victim.release(id)
		high.waitGranted(high.last)
		low.stays(low.last, lockkeeper.Waiting)
		high.notAsked(high.last)
		high.release(high.last)
		low.waitGranted(low.last)
	}},
	{"R10/the fewest permits of the lowest priority", stealing | counts, func(w *world) {
		names := []string{"one", "two", "urgent"}
		holders := map[string]*peer{}
		for i, units := range []int{1, 2, 2} {
			holders[names[i]] = w.peer(names[i])
			holders[names[i]].holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{permits("k", units, 5)}, Priority: i / 2})
		}
		t := w.peer("thief")
		t.ask(taker(2, 0, permits("k", 2, 5))) // taken at once
		t.waitGranted(t.last)
		holders["two"].waitEnded(holders["two"].last, lockkeeper.Stolen)
		holders["one"].notAsked(holders["one"].last)
		holders["urgent"].notAsked(holders["urgent"].last)
	}},
	{"R10/no permits from who would not help", stealing | counts, func(w *world) {
		low, high, t := w.peer("low"), w.peer("high"), w.peer("thief")
		low.hold(permits("k", 1, 3))
		high.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{permits("k", 2, 3)}, Priority: 5})
		t.queueAs(taker(1, 0, permits("k", 2, 3)))
		low.notAsked(low.last)
		t.stays(t.last, lockkeeper.Waiting)
	}},
	{"R10/a raised holder is left in peace", stealing | amends, func(w *world) {
		victim, t := w.peer("victim"), w.peer("thief")
		id := victim.hold(exclusive("db")).Ref.ID
		t.queueAs(thief(1, exclusive("db")))
		victim.waitAsked(id)
		raised := victim.wants[id]
		raised.Priority, raised.Revision = 1, 1
		if s := victim.ask(raised); s.Asked != nil {
			w.Errorf("raised, and still asked %v", s.Asked)
		}
		t.stays(t.last, lockkeeper.Waiting)
	}},
}

// grantedNow returns a channel that is closed once the claim is held. It repeats the claim from a
// goroutine of its own.
func (p *peer) grantedNow(id uint64) <-chan struct{} {
	held := make(chan struct{})
	want := p.wants[id]
	ctx := p.ctx() // ends with the check
	go func() {
		defer close(held)
		for ctx.Err() == nil {
			if s, err := p.engine.Claim(ctx, p.key, want); err != nil || s.State != lockkeeper.Waiting {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return held
}

// renewUntil keeps the session alive until c is closed.
func (p *peer) renewUntil(c <-chan struct{}) {
	p.Helper()
	end := time.After(p.maxWait())
	for {
		p.renew()
		select {
		case <-c:
			return
		case <-time.After(min(p.session.TTL/4, 100*time.Millisecond)):
		case <-end:
			p.Fatalf("nothing happened while %s was renewed", p.session.As)
		}
	}
}
