package enginetest

import (
	"errors"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// peer is a session that talks to the engine itself. It is used by one goroutine.
// Nothing renews it but renew.
type peer struct {
	*world
	engine  lockkeeper.Engine
	session lockkeeper.Session
	key     lockkeeper.Key
	lease   lockkeeper.Lease
	wants   map[uint64]lockkeeper.Want
	last    uint64 // id of the latest claim
	sent    time.Duration

	bell  chan struct{} // rung by every notification
	notes struct {
		sync.Mutex
		of map[uint64]lockkeeper.Status // the newest that was told of each claim
	}
}

// peer attaches a session that outlives the test.
func (w *world) peer(name string) *peer {
	w.Helper()
	return w.peerFor(name, longTTL)
}

// peerFor attaches a session with that TTL.
func (w *world) peerFor(name string, ttl time.Duration) *peer {
	w.Helper()
	p := &peer{world: w, engine: w.handle(), wants: make(map[uint64]lockkeeper.Want), bell: make(chan struct{}, 1)}
	p.notes.of = make(map[uint64]lockkeeper.Status)
	p.session = lockkeeper.Session{ID: w.name(name), TTL: ttl, Label: lockkeeper.Label{As: name}}
	p.attach()
	return p
}

// attach attaches the session, or takes it over from its own latest attach, naming
// claims.
func (p *peer) attach(named ...uint64) lockkeeper.Lease {
	p.Helper()
	p.session.Named, p.session.Epoch = named, p.key.Epoch
	p.sent = p.now()
	lease, err := p.engine.Attach(p.ctx(), p.session, p.notify)
	p.ok(err)
	if lease.TTL < p.session.TTL || lease.Key.Session != p.session.ID {
		p.Fatalf("attached %v with a TTL of %s, the answer is %+v", p.session.ID, p.session.TTL, lease)
	}
	p.key, p.lease = lease.Key, lease
	return lease
}

func (p *peer) notify(statuses []lockkeeper.Status) {
	p.notes.Lock()
	for _, s := range statuses {
		if s.Change > p.notes.of[s.Ref.ID].Change {
			p.notes.of[s.Ref.ID] = s
		}
	}
	p.notes.Unlock()
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// send sends w as a new claim and returns what the engine says.
func (p *peer) send(want lockkeeper.Want) (lockkeeper.Status, error) {
	if want.ID == 0 {
		p.last++
		want.ID = p.last
	}
	p.last = want.ID
	p.wants[want.ID] = want
	return p.engine.Claim(p.ctx(), p.key, want)
}

// ask sends want, which must not be refused.
func (p *peer) ask(want lockkeeper.Want) lockkeeper.Status {
	p.Helper()
	s, err := p.send(want)
	p.ok(err)
	return s
}

// hold asks for targets, which must be granted at once.
func (p *peer) hold(targets ...lockkeeper.Target) lockkeeper.Status {
	p.Helper()
	return p.holdAs(lockkeeper.Want{Targets: targets})
}

// holdAs asks for want, which must be granted at once.
func (p *peer) holdAs(want lockkeeper.Want) lockkeeper.Status {
	p.Helper()
	s := p.ask(want)
	if s.State != lockkeeper.Held {
		p.Fatalf("%s asks for %v: %s (%s) %v, want it held", p.session.As, want.Targets, s.State, s.Reason, s.Blockers)
	}
	if s.Fence == 0 {
		p.Fatalf("%s holds %v without a fence", p.session.As, want.Targets)
	}
	return s
}

// queue asks for targets without a bound, and must have to wait.
func (p *peer) queue(targets ...lockkeeper.Target) uint64 {
	p.Helper()
	return p.queueAs(lockkeeper.Want{Targets: targets, Wait: forever})
}

// queueAs asks for want, and must have to wait.
func (p *peer) queueAs(want lockkeeper.Want) uint64 {
	p.Helper()
	if s := p.ask(want); s.State != lockkeeper.Waiting {
		p.Fatalf("%s asks for %v: %s (%s), want it to wait", p.session.As, want.Targets, s.State, s.Reason)
	}
	return p.last
}

// refused tries targets, which must be taken.
func (p *peer) refused(targets ...lockkeeper.Target) lockkeeper.Status {
	p.Helper()
	s := p.ask(lockkeeper.Want{Targets: targets})
	if s.State != lockkeeper.Ended || s.Reason != lockkeeper.TimedOut {
		p.Fatalf("%s tries %v: %s (%s), want ended (timed out)", p.session.As, targets, s.State, s.Reason)
	}
	return s
}

// status asks again what became of the claim.
func (p *peer) status(id uint64) lockkeeper.Status {
	p.Helper()
	s, err := p.engine.Claim(p.ctx(), p.key, p.wants[id])
	p.ok(err)
	return s
}

// still fails the test unless the claim is in that state when all has settled.
func (p *peer) still(id uint64, state lockkeeper.State) lockkeeper.Status {
	p.Helper()
	p.settled()
	s := p.status(id)
	if s.State != state {
		p.Fatalf("%s's claim %d is %s (%s), want %s", p.session.As, id, s.State, s.Reason, state)
	}
	return s
}

// granted waits until the claim is held.
func (p *peer) granted(id uint64) lockkeeper.Status {
	p.Helper()
	return p.await(id, "held", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Held })
}

// ended waits until the claim has ended for that reason.
func (p *peer) ended(id uint64, why lockkeeper.Reason) lockkeeper.Status {
	p.Helper()
	s := p.await(id, "ended", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Ended })
	if s.Reason != why {
		p.Fatalf("%s's claim %d ended as %s, want %s", p.session.As, id, s.Reason, why)
	}
	return s
}

// await waits until the claim's status is as wanted: on notifications, and
// behind them, since they are only hints, by asking.
func (p *peer) await(id uint64, what string, want func(lockkeeper.Status) bool) lockkeeper.Status {
	p.Helper()
	end := time.After(patience)
	for {
		s, err := p.engine.Claim(p.ctx(), p.key, p.wants[id])
		p.ok(err)
		if want(s) {
			return s
		}
		select {
		case <-p.bell:
		case <-time.After(20 * time.Millisecond):
		case <-end:
			why := p.explain(id)
			p.Fatalf("%s's claim %d (%v) is %s (%s), want %s; it waits for %v: %v", p.session.As, id, p.wants[id].Targets,
				s.State, s.Reason, what, why.Waits, why.Blockers)
		}
	}
}

// told waits until a renewal tells that of the claim, as its holder would learn
// of it if every notification was lost.
func (p *peer) told(id uint64, what string, want func(lockkeeper.Status) bool) lockkeeper.Status {
	p.Helper()
	end := time.After(patience)
	for {
		for _, s := range p.renew().Claims {
			if s.Ref.ID == id && want(s) {
				return s
			}
		}
		select {
		case <-p.bell:
		case <-time.After(20 * time.Millisecond):
		case <-end:
			p.Fatalf("%s's renewals do not tell that claim %d is %s", p.session.As, id, what)
		}
	}
}

// asked waits until the holder of the claim is told that it should yield.
func (p *peer) asked(id uint64) lockkeeper.Asked {
	p.Helper()
	return *p.told(id, "asked to yield", func(s lockkeeper.Status) bool { return s.Asked != nil }).Asked
}

// unasked fails the test if the holder of the claim is asked to yield when all
// has settled.
func (p *peer) unasked(id uint64) {
	p.Helper()
	p.settled()
	if s := p.status(id); s.State != lockkeeper.Held || s.Asked != nil {
		p.Fatalf("%s's claim %d is %s and asked %v, want it held in peace", p.session.As, id, s.State, s.Asked)
	}
}

// renew renews the session.
func (p *peer) renew() lockkeeper.Lease {
	p.Helper()
	p.sent = p.now()
	lease, err := p.engine.Renew(p.ctx(), p.key)
	p.ok(err)
	return lease
}

// end ends something.
func (p *peer) end(e lockkeeper.Ending) error {
	return p.engine.End(p.ctx(), p.key, e)
}

// release ends a claim of the session.
func (p *peer) release(id uint64) {
	p.Helper()
	p.ok(p.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}))
}

// leave ends the session.
func (p *peer) leave() {
	p.Helper()
	p.ok(p.end(lockkeeper.Ending{Kind: lockkeeper.Leave}))
}

// ref names the claim.
func (p *peer) ref(id uint64) lockkeeper.Ref {
	return lockkeeper.Ref{Session: p.session.ID, ID: id}
}

// list collects what q selects.
func (p *peer) list(q lockkeeper.Query) []lockkeeper.Status {
	p.Helper()
	var all []lockkeeper.Status
	for s, err := range p.engine.List(p.ctx(), q) {
		p.ok(err)
		all = append(all, s)
	}
	return all
}

// explain asks where the claim stands, with place and evidence, by the way of
// an operator where there is one.
func (p *peer) explain(id uint64) lockkeeper.Status {
	p.Helper()
	if !p.claims(operators) {
		return p.status(id)
	}
	all := p.list(lockkeeper.Query{Ref: p.ref(id)})
	if len(all) != 1 {
		p.Fatalf("%s's claim %d is listed as %+v", p.session.As, id, all)
	}
	return all[0]
}

// free fails the test unless all targets can be had, each alone and at once,
// soon, by somebody new.
func (w *world) free(targets ...lockkeeper.Target) {
	w.Helper()
	for _, t := range targets {
		p := w.peer("next")
		if s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{t}, Wait: forever}); s.State == lockkeeper.Ended {
			w.Fatalf("%s is not to be had: %s", t, s.Reason)
		}
		p.granted(p.last)
		p.leave()
	}
}

// sessionGone fails the test unless the session has ended at the engine.
func (p *peer) sessionGone() {
	p.Helper()
	if _, err := p.engine.Renew(p.ctx(), p.key); !errors.Is(err, lockkeeper.ErrSession) {
		p.Fatalf("renewing an ended session: %v, want %v", err, lockkeeper.ErrSession)
	}
}
