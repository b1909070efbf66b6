package access

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// totals are what all identities have together.
type totals struct {
	claims, sessions counter
	most             Quota     // hard caps
	began            time.Time // of the clock of all accounts
}

// now is the time since the gate was made. It does not jump with the wall clock.
func (t *totals) now() time.Duration { return time.Since(t.began) }

// A counter counts what is there. It never exceeds a bound, not even for a moment.
type counter struct{ n atomic.Int64 }

// take counts n more, unless that would be more than most; 0 is no bound.
func (c *counter) take(n, most int) bool {
	if n == 0 {
		return true // also if a bound was lowered beneath what is there
	}
	if most <= 0 {
		c.n.Add(int64(n))
		return true
	}
	for {
		have := c.n.Load()
		if have+int64(n) > int64(most) {
			return false
		}
		if c.n.CompareAndSwap(have, have+int64(n)) {
			return true
		}
	}
}

func (c *counter) give(n int) {
	if n != 0 {
		c.n.Add(-int64(n))
	}
}

// An account counts what one identity has. The order of locks is account, seat;
// neither is held while the engine is called.
type account struct {
	name                             string
	totals                           *totals
	claimed, waiting, sessions, used counter // used: paths

	soonest atomic.Int64 // no session's time is over before this, by totals.now

	mu      sync.RWMutex
	seats   map[string]*seat // by session id, as the identity calls it
	sweepAt int              // how many seats make it worth to look which are over
}

const smallSweep = 64

func newAccount(name string, t *totals) *account {
	a := &account{name: name, totals: t, seats: make(map[string]*seat), sweepAt: smallSweep}
	a.soonest.Store(math.MaxInt64)
	return a
}

// find is the session's seat, locked and with a call in flight on it; nil if it has
// none. Whoever has found it must let go of it by leave.
func (a *account) find(session string) *seat {
	a.mu.RLock()
	defer a.mu.RUnlock() // until it is locked, so that it is in use
	return a.enter(session)
}

// enter is find; a is locked, for reading at least.
func (a *account) enter(session string) *seat {
	s := a.seats[session]
	if s != nil {
		s.mu.Lock()
		s.calls++
	}
	return s
}

// seat is find, but makes a seat if there is none.
func (a *account) seat(session string) *seat {
	if s := a.find(session); s != nil {
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seats[session] == nil {
		if len(a.seats) >= a.sweepAt {
			a.sweep(a.totals.now())
			a.sweepAt = 2*len(a.seats) + smallSweep
		}
		a.seats[session] = &seat{account: a, session: session, claims: make(map[uint64]counted)}
	}
	return a.enter(session)
}

// discard forgets a seat of which nothing became.
func (a *account) discard(s *seat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == 0 && !s.counted && !s.over {
		a.remove(s)
	}
}

// remove gives back all that s has. Both are locked.
func (a *account) remove(s *seat) {
	s.over = true
	for id, c := range s.claims {
		s.giveBack(&c)
		s.put(id, c)
	}
	if s.counted {
		s.counted = false
		a.giveSession()
	}
	delete(a.seats, s.session)
}

// makeRoom gives back what sessions have whose time is over. It costs nothing until
// the next one can be.
func (a *account) makeRoom() {
	now := a.totals.now()
	if int64(now) < a.soonest.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
}

// sweep is makeRoom; a is locked.
func (a *account) sweep(now time.Duration) {
	a.soonest.Store(math.MaxInt64) // before looking: who is attached meanwhile lowers it again
	for _, s := range a.seats {
		s.mu.Lock()
		if s.counted && s.calls == 0 && s.until <= now {
			a.remove(s)
		} else if s.counted {
			a.expect(s.until)
		}
		s.mu.Unlock()
	}
}

// expect notes that a session may be over at that time.
func (a *account) expect(until time.Duration) {
	for {
		soonest := a.soonest.Load()
		if int64(until) >= soonest || a.soonest.CompareAndSwap(soonest, int64(until)) {
			return
		}
	}
}

// takeSession counts a session more, if there is room.
func (a *account) takeSession(most int) error {
	if !a.sessions.take(1, most) {
		return a.full("sessions", &a.sessions, 1, most)
	}
	if !a.totals.sessions.take(1, a.totals.most.Sessions) {
		a.sessions.give(1)
		return a.allFull("sessions", a.totals.most.Sessions)
	}
	return nil
}

func (a *account) giveSession() {
	a.sessions.give(1)
	a.totals.sessions.give(1)
}

// A demand is what counts of one claim.
type demand struct{ claims, waiting, paths int }

// take counts d, if there is room.
func (a *account) take(d demand, q, total *Quota) error {
	if !a.claimed.take(d.claims, q.Claims) {
		return a.full("claims", &a.claimed, d.claims, q.Claims)
	}
	if !a.waiting.take(d.waiting, q.Waiting) {
		a.claimed.give(d.claims)
		return a.full("claims that wait", &a.waiting, d.waiting, q.Waiting)
	}
	if !a.used.take(d.paths, q.Paths) {
		a.waiting.give(d.waiting)
		a.claimed.give(d.claims)
		return a.full("paths", &a.used, d.paths, q.Paths)
	}
	if !a.totals.claims.take(d.claims, total.Claims) {
		a.used.give(d.paths)
		a.waiting.give(d.waiting)
		a.claimed.give(d.claims)
		return a.allFull("claims", total.Claims)
	}
	return nil
}

// noBound is the quota of what is there already: it counts, and is not refused.
var noBound Quota

// give is the reverse of take.
func (a *account) give(d demand) {
	a.claimed.give(d.claims)
	a.waiting.give(d.waiting)
	a.used.give(d.paths)
	a.totals.claims.give(d.claims)
}

// full is the refusal of n more.
func (a *account) full(what string, have *counter, n, most int) error {
	if n > most {
		return overdrawn("%d %s are more than %d, the most that %s may have at a time", n, what, most, a.name)
	}
	return overdrawn("%s has %d %s and asks for %d more: %d are the most that it may have; release some, or wait until they end",
		a.name, have.n.Load(), what, n, most)
}

func (a *account) allFull(what string, most int) error {
	return overdrawn("all together have %d %s, which is the most that this server takes; try again when some have ended", most, what)
}
