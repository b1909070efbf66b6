package limits

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Quota limits what one identity may have at a time. 0 stands for the bound of the ledger, if it
// has one.
type Quota struct {
	Claims, Waiting, Sessions, Paths int
	SessionClaims                    int // claims of one of its sessions
}

// An Identity counts what one identity uses. The lock order is Identity, Session; no engine call
// runs with either held.
type Identity struct {
	name   string
	ledger *Ledger
	used   [resources]counter
	frames *room

	soonest atomic.Int64 // no session expires before this, by Ledger.now

	mu       sync.RWMutex
	sessions map[string]*Session // by id, as the identity calls it
	sweepAt  int                 // number of sessions at which the next sweep is worth its cost
}

const smallSweep = 64

func newIdentity(name string, l *Ledger) *Identity {
	i := &Identity{name: name, ledger: l, sessions: make(map[string]*Session), sweepAt: smallSweep}
	share := l.bounds.FrameBytesEach
	if name == "" { // all clients of an open server
		share = l.bounds.FrameBytes
	}
	i.frames = newRoom(share)
	i.soonest.Store(math.MaxInt64)
	return i
}

// find returns the session, locked and with a call in flight on it; nil if it is unknown. The
// caller must call Session.finishCall.
func (i *Identity) find(session string) *Session {
	i.mu.RLock()
	defer i.mu.RUnlock() // held until the session is locked and in use
	return i.beginCall(session)
}

// beginCall is find for a caller that holds i.mu, at least for reading.
func (i *Identity) beginCall(session string) *Session {
	s := i.sessions[session]
	if s != nil {
		s.mu.Lock()
		s.calls++
	}
	return s
}

// session is find, but creates an unknown session.
func (i *Identity) session(session string) *Session {
	if s := i.find(session); s != nil {
		return s
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.sessions[session] == nil {
		if len(i.sessions) >= i.sweepAt {
			i.sweep(i.ledger.now())
			i.sweepAt = 2*len(i.sessions) + smallSweep
		}
		i.sessions[session] = &Session{identity: i, id: session}
	}
	return i.beginCall(session)
}

// discard removes a session that is not counted.
func (i *Identity) discard(s *Session) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == 0 && !s.counted && i.sessions[s.id] == s {
		i.remove(s)
	}
}

// remove removes s, which has no call in flight, and gives back all that it uses. The caller holds
// both locks.
func (i *Identity) remove(s *Session) {
	for id, c := range s.claims.all() {
		s.release(&c)
		s.put(id, c)
	}
	if s.counted {
		s.counted = false
		i.Give(Sessions, 1)
	}
	delete(i.sessions, s.id)
}

// expireSessions removes expired sessions and gives back their resources. It returns at once as
// long as no session can have expired.
func (i *Identity) expireSessions() {
	now := i.ledger.now()
	if int64(now) < i.soonest.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweep(now)
}

// sweep is expireSessions for a caller that holds i.mu.
func (i *Identity) sweep(now time.Duration) {
	i.soonest.Store(math.MaxInt64) // before the loop: a concurrent attach may lower it again
	for _, s := range i.sessions {
		s.mu.Lock()
		if s.counted && s.calls == 0 && s.until <= now {
			i.remove(s)
		} else if s.counted {
			i.expect(s.until)
		}
		s.mu.Unlock()
	}
}

// expect records that a session may expire at that time.
func (i *Identity) expect(until time.Duration) {
	for {
		soonest := i.soonest.Load()
		if int64(until) >= soonest || i.soonest.CompareAndSwap(soonest, int64(until)) {
			return
		}
	}
}

// A demand is what one claim counts for.
type demand struct{ claims, waiting, paths int }

func (d demand) plus(e demand) demand {
	return demand{d.claims + e.claims, d.waiting + e.waiting, d.paths + e.paths}
}

func (d demand) minus(e demand) demand {
	return demand{d.claims - e.claims, d.waiting - e.waiting, d.paths - e.paths}
}

// takeDemand counts d, or refuses it if it exceeds q. A nil quota refuses nothing.
func (i *Identity) takeDemand(d demand, q *Quota) error {
	if q == nil {
		i.addDemand(d)
		return nil
	}
	claims := q.Claims
	if claims == 0 {
		claims = i.bound(Claims)
	}
	most := [...]int{claims, q.Waiting, q.Paths}
	parts := d.parts()
	for n, part := range parts {
		if err := i.take(part.of, part.n, most[n]); err != nil {
			for _, taken := range parts[:n] {
				i.Give(taken.of, taken.n)
			}
			return err
		}
	}
	return nil
}

// addDemand counts d without a limit, because the claim exists already.
func (i *Identity) addDemand(d demand) {
	for _, part := range d.parts() {
		i.Give(part.of, -part.n)
	}
}

// giveDemand is the reverse of takeDemand.
func (i *Identity) giveDemand(d demand) { i.addDemand(demand{}.minus(d)) }

// A part is how much of one resource a claim needs.
type part struct {
	of Resource
	n  int
}

func (d demand) parts() [3]part {
	return [...]part{{Claims, d.claims}, {Waiting, d.waiting}, {Paths, d.paths}}
}
