package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// peer is a session that calls the engine directly, from one goroutine. It never renews by itself.
type peer struct {
	*world
	engine  lockkeeper.Engine
	session lockkeeper.Session
	key     lockkeeper.Key
	lease   lockkeeper.Lease
	wants   map[uint64]lockkeeper.Want
	last    uint64 // id of the latest claim
	sent    time.Duration
	dies    func() // of a renewedPeer: ends the renewals

	wakeup chan struct{} // receives after every notification
	notes  struct {
		sync.Mutex
		of map[uint64]lockkeeper.Status // the newest status of each claim
	}
}

// peer attaches a session that outlives the check.
func (w *world) peer(name string) *peer {
	w.Helper()
	return w.peerFor(name, w.longTTL())
}

// peerFor attaches a session with the given TTL.
func (w *world) peerFor(name string, ttl time.Duration) *peer {
	w.Helper()
	p := &peer{world: w, engine: w.handle(), wants: make(map[uint64]lockkeeper.Want), wakeup: make(chan struct{}, 1)}
	p.notes.of = make(map[uint64]lockkeeper.Status)
	p.session = lockkeeper.Session{ID: w.name(name), TTL: ttl, Label: lockkeeper.Label{As: name}}
	p.attach()
	return p
}

// renewedPeer attaches a session that a goroutine renews until p.dies is called or the check ends. So
// the session lives for as long as the check needs it, however slow the machine is. The check does not
// attach it again before p.dies.
func (w *world) renewedPeer(name string, ttl time.Duration) *peer {
	w.Helper()
	p := w.peerFor(name, ttl)
	key, stop, stopped := p.key, make(chan struct{}), make(chan struct{})
	p.dies = sync.OnceFunc(func() { close(stop); <-stopped })
	w.Cleanup(p.dies)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(ttl / 4):
			case <-stop:
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), ttl)
			p.engine.Renew(ctx, key) // if it fails, the next one may succeed in time
			cancel()
		}
	}()
	return p
}

// attach attaches the session, or attaches it again under its latest epoch, naming claims.
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
	case p.wakeup <- struct{}{}:
	default:
	}
}

// send sends want as a new claim and returns the engine's answer.
func (p *peer) send(want lockkeeper.Want) (lockkeeper.Status, error) {
	if want.ID == 0 {
		p.last++
		want.ID = p.last
	}
	p.last = want.ID
	p.wants[want.ID] = want
	return p.engine.Claim(p.ctx(), p.key, want)
}

// ask sends want, which the engine must accept.
func (p *peer) ask(want lockkeeper.Want) lockkeeper.Status {
	p.Helper()
	s, err := p.send(want)
	p.ok(err)
	return s
}

// hold requests targets. The engine must grant them at once.
func (p *peer) hold(targets ...lockkeeper.Target) lockkeeper.Status {
	p.Helper()
	return p.holdAs(lockkeeper.Want{Targets: targets})
}

// holdAs requests want. The engine must grant it at once.
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

// queue requests targets with an unlimited wait. The claim must wait. queue returns its id.
func (p *peer) queue(targets ...lockkeeper.Target) uint64 {
	p.Helper()
	return p.queueAs(lockkeeper.Want{Targets: targets, Wait: forever})
}

// request requests want, and returns its id. The claim may wait or not: use request for a claim that only
// waits for a moment, which may have passed on a busy machine.
func (p *peer) request(want lockkeeper.Want) uint64 {
	p.Helper()
	p.ask(want)
	return p.last
}

// queueAs requests want. The claim must wait.
func (p *peer) queueAs(want lockkeeper.Want) uint64 {
	p.Helper()
	if s := p.ask(want); s.State != lockkeeper.Waiting {
		p.Fatalf("%s asks for %v: %s (%s), want it to wait", p.session.As, want.Targets, s.State, s.Reason)
	}
	return p.last
}

// refused requests targets without a wait. The engine must refuse them.
func (p *peer) refused(targets ...lockkeeper.Target) lockkeeper.Status {
	p.Helper()
	s := p.ask(lockkeeper.Want{Targets: targets})
	if s.State != lockkeeper.Ended || s.Reason != lockkeeper.TimedOut {
		p.Fatalf("%s tries %v: %s (%s), want ended (timed out)", p.session.As, targets, s.State, s.Reason)
	}
	return s
}

// status repeats the claim and returns its status.
func (p *peer) status(id uint64) lockkeeper.Status {
	p.Helper()
	s, err := p.engine.Claim(p.ctx(), p.key, p.wants[id])
	p.ok(err)
	return s
}

// stays quiesces the world and fails the check unless the claim is in the given state.
func (p *peer) stays(id uint64, state lockkeeper.State) lockkeeper.Status {
	p.Helper()
	p.quiesce()
	s := p.status(id)
	if s.State != state {
		p.Fatalf("%s's claim %d is %s (%s), want %s", p.session.As, id, s.State, s.Reason, state)
	}
	return s
}

// waitGranted waits until the claim is held.
func (p *peer) waitGranted(id uint64) lockkeeper.Status {
	p.Helper()
	return p.await(id, "held", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Held })
}

// waitEnded waits until the claim has ended, and checks the reason.
func (p *peer) waitEnded(id uint64, why lockkeeper.Reason) lockkeeper.Status {
	p.Helper()
	s := p.await(id, "ended", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Ended })
	if s.Reason != why {
		p.Fatalf("%s's claim %d ended as %s, want %s", p.session.As, id, s.Reason, why)
	}
	return s
}

// await waits until want accepts the claim's status. It repeats the claim after each notification,
// and also every 20 ms, because notifications are only hints.
func (p *peer) await(id uint64, what string, want func(lockkeeper.Status) bool) lockkeeper.Status {
	p.Helper()
	end := time.After(p.maxWait())
	for {
		s, err := p.engine.Claim(p.ctx(), p.key, p.wants[id])
		p.ok(err)
		if want(s) {
			return s
		}
		select {
		case <-p.wakeup:
		case <-time.After(20 * time.Millisecond):
		case <-end:
			why := p.explain(id)
			p.Fatalf("%s's claim %d (%v) is %s (%s), want %s; it waits for %v: %v", p.session.As, id, p.wants[id].Targets,
				s.State, s.Reason, what, why.Waits, why.Blockers)
		}
	}
}

// renewalShows waits until want accepts the claim's status in a lease of a renewal. A holder gets
// the status there even if the network loses every notification.
func (p *peer) renewalShows(id uint64, what string, want func(lockkeeper.Status) bool) lockkeeper.Status {
	p.Helper()
	end := time.After(p.maxWait())
	for {
		for _, s := range p.renew().Claims {
			if s.Ref.ID == id && want(s) {
				return s
			}
		}
		select {
		case <-p.wakeup:
		case <-time.After(20 * time.Millisecond):
		case <-end:
			p.Fatalf("%s's renewals do not report that claim %d is %s", p.session.As, id, what)
		}
	}
}

// waitAsked waits until a renewal asks the holder of the claim to yield.
func (p *peer) waitAsked(id uint64) lockkeeper.Asked {
	p.Helper()
	return *p.renewalShows(id, "asked to yield", func(s lockkeeper.Status) bool { return s.Asked != nil }).Asked
}

// notAsked quiesces the world and fails the check if the holder of the claim is asked to yield.
func (p *peer) notAsked(id uint64) {
	p.Helper()
	p.quiesce()
	if s := p.status(id); s.State != lockkeeper.Held || s.Asked != nil {
		p.Fatalf("%s's claim %d is %s and asked %v, want it held and not asked", p.session.As, id, s.State, s.Asked)
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

// end sends an ending.
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

// ref returns the reference of the claim.
func (p *peer) ref(id uint64) lockkeeper.Ref {
	return lockkeeper.Ref{Session: p.session.ID, ID: id}
}

// list returns the statuses that q selects.
func (p *peer) list(q lockkeeper.Query) []lockkeeper.Status {
	p.Helper()
	var all []lockkeeper.Status
	for s, err := range p.engine.List(p.ctx(), q) {
		p.ok(err)
		all = append(all, s)
	}
	return all
}

// explain returns the status of the claim with its position and blockers. It uses an operator's
// List if the engine has one.
func (p *peer) explain(id uint64) lockkeeper.Status {
	p.Helper()
	if !p.claims(lists) {
		return p.status(id)
	}
	all := p.list(lockkeeper.Query{Ref: p.ref(id)})
	if len(all) != 1 {
		p.Fatalf("%s's claim %d is listed as %+v", p.session.As, id, all)
	}
	return all[0]
}

// free fails the check unless a new session gets each target, alone and soon.
func (w *world) free(targets ...lockkeeper.Target) {
	w.Helper()
	for _, t := range targets {
		p := w.peer("next")
		if s := p.ask(lockkeeper.Want{Targets: []lockkeeper.Target{t}, Wait: forever}); s.State == lockkeeper.Ended {
			w.Fatalf("%s is not free: %s", t, s.Reason)
		}
		p.waitGranted(p.last)
		p.leave()
	}
}

// sessionGone fails the check unless the session has ended at the engine.
func (p *peer) sessionGone() {
	p.Helper()
	if _, err := p.engine.Renew(p.ctx(), p.key); !errors.Is(err, lockkeeper.ErrSession) {
		p.Fatalf("renewing an ended session: %v, want %v", err, lockkeeper.ErrSession)
	}
}
