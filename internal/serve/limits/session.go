package limits

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// A Session counts what one session uses. See the package comment for its states.
//
// Answers, notifications and leases arrive in any order. So Status.Change decides which state of a
// claim is newer, an end is final, and the session remembers an ended claim as long as calls about
// it are in flight. A lease may be older than other known states. It adds a claim only if no claim
// has ended since the lease was requested.
type Session struct {
	identity *Identity
	id       string

	mu         sync.Mutex // guards all below
	claims     claimCounts
	epoch      uint64        // the latest known; 0: none
	taken      uint64        // the latest whose attach was answered here; 0: none
	left       uint64        // the latest that has left; 0: none
	shortest   time.Duration // shortest TTL requested; 0: unknown, or one of them has no end
	longest    time.Duration // longest TTL requested; 0: unknown; lockkeeper.Forever: one of them has no end
	leased     time.Duration // last attached, renewed or found to exist, by Ledger.now
	until      time.Duration // latest end unless it is renewed, by Ledger.now; 0: no answer suggests that it exists
	generation uint64        // rises with every end, and every lost answer
	unknown    int           // claims whose outcome is unknown
	live       int           // counted claims
	lostAttach uint64        // the generation in which the answer to an attach was lost; 0: none was
	attaching  int           // attaches in flight; while there are some, the session counts
	calls      int           // in flight; while there are some, the session stays
	counted    bool          // as a session
}

// counted is the count of one claim.
type counted struct {
	change  uint64        // Status.Change of the newest state; 0: none known
	epoch   uint64        // the latest under which it was claimed or listed
	began   time.Duration // its earliest possible start, by Ledger.now
	unknown uint64        // the generation in which an answer was lost; 0: none was
	demand  demand
	queued  []lockkeeper.Path // paths at which it is counted as waiting
	calls   int               // Claim calls in flight
	opening int               // of these, calls that open the session too, so that their epoch is not known
	gone    bool              // it has ended, and is no longer counted
}

// finishCall ends a call in flight on s, and unlocks s. A session that nothing suggests any more
// stops counting.
func (s *Session) finishCall() {
	s.calls--
	if s.counted && s.until == 0 && s.attaching == 0 && (s.live == 0 || s.calls == 0) {
		s.counted = false
		s.identity.Give(Sessions, 1)
	}
	nothing := s.calls == 0 && !s.counted
	s.mu.Unlock()
	if nothing {
		s.identity.discard(s)
	}
}

// confirm counts the session, which turned out to exist.
func (s *Session) confirm() {
	if !s.counted {
		s.counted = true
		s.identity.Give(Sessions, -1)
	}
	if s.until == 0 {
		s.extend(lockkeeper.DefaultTTL) // until a lease states it
	}
}

// ended reports whether a session with that epoch has left; 0 is an unknown epoch.
func (s *Session) ended(epoch uint64) bool { return epoch != 0 && epoch <= s.left }

// leave releases what has left under that epoch. Calls in flight, and calls whose outcome is
// unknown, may have opened the next session of this id, and made claims of it.
func (s *Session) leave(epoch uint64) {
	s.left = max(s.left, epoch)
	for id, c := range s.claims.all() {
		if c.epoch <= epoch && c.opening == 0 {
			s.release(&c)
			s.put(id, c)
		}
	}
	if s.lostAttach == 0 && s.unknown == 0 {
		s.until = 0
	}
}

// requested records that an attach may give the session that TTL.
func (s *Session) requested(ttl time.Duration) {
	switch {
	case ttl == 0:
		s.shortest, s.longest = 0, lockkeeper.Forever
	case s.longest == 0:
		s.shortest, s.longest = ttl, ttl
	default:
		s.shortest, s.longest = min(s.shortest, ttl), max(s.longest, ttl)
	}
}

// extend records that the session lives for ttl from now, unless it is renewed; 0 is without end.
// A shorter ttl never brings an earlier promise nearer (R11).
func (s *Session) extend(ttl time.Duration) {
	s.leased = s.identity.ledger.now()
	until := lockkeeper.Forever
	if ttl > 0 && ttl < lockkeeper.Forever {
		until = s.leased + ttl
	}
	if s.until == lockkeeper.Forever || s.until < until {
		s.until = until
	}
	s.identity.expect(s.until)
}

// living reports whether st is waiting or held, so that it is counted.
func living(st *lockkeeper.Status) bool {
	return st.State == lockkeeper.Waiting || st.State == lockkeeper.Held
}

// update applies a state of the claim that is counted as c.
func (s *Session) update(c counted, st *lockkeeper.Status) {
	switch {
	case !living(st):
		s.release(&c)
	case !c.gone && st.Change >= c.change:
		s.known(&c)
		c.change = st.Change
		s.become(&c, st)
	}
	s.put(st.Ref.ID, c)
}

// demandOf returns the demand of the claim with the status st.
func demandOf(st *lockkeeper.Status) demand {
	d := demand{claims: 1, paths: len(st.Grants)}
	if st.State == lockkeeper.Waiting {
		d.waiting = 1
	}
	return d
}

// become sets the demand of c to that of its known state.
func (s *Session) become(c *counted, st *lockkeeper.Status) {
	d := demandOf(st)
	s.live += d.claims - c.demand.claims
	s.identity.addDemand(d.minus(c.demand))
	c.demand = d
	switch {
	case d.waiting == 0:
		s.leaveQueues(c)
	case c.queued == nil:
		for i := range st.Grants {
			c.queued = append(c.queued, st.Grants[i].Path)
		}
		s.identity.ledger.queues.join(c.queued, 0)
	}
}

// leaveQueues stops counting c as waiting at its paths.
func (s *Session) leaveQueues(c *counted) {
	s.identity.ledger.queues.leave(c.queued)
	c.queued = nil
}

// updateOrAdd is update for a claim that may not be counted yet. A lease of that epoch, requested
// in that generation, lists it. It counts an unknown claim only if the status is fresh. A lease
// says nothing about a call that may have made the claim under a later epoch.
func (s *Session) updateOrAdd(st *lockkeeper.Status, epoch, generation uint64, fresh bool) {
	c, known := s.claims.get(st.Ref.ID)
	switch {
	case known && !c.covered(epoch, generation):
	case known:
		c.epoch = epoch
		s.update(c, st)
	case fresh && living(st):
		c = counted{change: st.Change, epoch: epoch, began: longAgo}
		s.become(&c, st)
		s.put(st.Ref.ID, c)
	}
}

// covered reports whether a lease of that epoch, requested in that generation, covers all calls for
// c: it was not claimed under a later epoch, or that answer was lost before the request.
func (c *counted) covered(epoch, generation uint64) bool {
	return c.opening == 0 && (c.epoch <= epoch || c.lostBefore(generation))
}

// lostBefore reports whether no call for c is in flight, and an answer was lost, the latest before
// a request of that generation.
func (c *counted) lostBefore(generation uint64) bool {
	return c.calls == 0 && 0 < c.unknown && c.unknown <= generation
}

// put stores c, or removes it if it has ended and no call about it is in flight.
func (s *Session) put(id uint64, c counted) {
	if c.gone && c.calls == 0 {
		s.claims.delete(id)
		return
	}
	s.claims.set(id, c)
}

// release stops counting c, which has ended.
func (s *Session) release(c *counted) {
	if c.gone {
		return
	}
	s.live -= c.demand.claims
	s.identity.giveDemand(c.demand)
	s.leaveQueues(c)
	s.known(c)
	s.generation++
	c.gone = true
}

// lost records that an answer about c was lost.
func (s *Session) lost(c *counted) {
	if c.gone {
		return
	}
	if c.unknown == 0 {
		s.unknown++
	}
	s.generation++
	c.unknown = s.generation
}

// known records that the outcome of c is known.
func (s *Session) known(c *counted) {
	if c.unknown != 0 {
		c.unknown = 0
		s.unknown--
	}
}

// longAgo is the earliest possible start of a claim that existed already.
const longAgo = math.MinInt64 / 2

// reconcile releases claims whose outcome is unknown and that a lease does not list. The client
// requested the lease in that generation. The lease would list each claim made within the TTL
// before it.
func (s *Session) reconcile(generation uint64) {
	if s.unknown == 0 {
		return
	}
	now := s.identity.ledger.now()
	for id, c := range s.claims.all() {
		if c.lostBefore(generation) && now-c.began <= s.shortest {
			s.release(&c)
			s.put(id, c)
		}
	}
}

// uncertain reports whether the engine may have performed a call that failed with err.
func uncertain(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return false
		}
	}
	return true
}

// refusals are the errors after which an engine has changed nothing.
var refusals = [...]error{
	lockkeeper.ErrSession, lockkeeper.ErrNotHeld, lockkeeper.ErrInvalid, lockkeeper.ErrDenied,
	lockkeeper.ErrUnsupported, lockkeeper.ErrNotAcquired, roundtrip.ErrNoEffect,
}
