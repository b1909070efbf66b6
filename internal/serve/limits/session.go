package limits

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Session counts what one session uses. When it cannot know it counts too much rather than too
// little.
//
// Answers of the engine, notifications and leases arrive in any order. So Status.Change decides
// which state of a claim is newer, an end is final, and an ended claim is remembered as long as
// calls about it are in flight. A lease may be older than what is known. It makes a claim count
// only if nothing has ended since the lease was requested.
type Session struct {
	identity *Identity
	id       string

	mu         sync.Mutex // guards all below
	claims     map[uint64]counted
	epoch      uint64        // the latest that is known; 0: none is
	taken      uint64        // the latest whose attach was answered here; 0: none was
	shortest   time.Duration // requested TTL; 0: not known, or one without end
	longest    time.Duration // likewise; lockkeeper.Forever: one without end
	leased     time.Duration // last attached, renewed or found to exist, by Ledger.now
	until      time.Duration // over at the latest unless it is renewed, by Ledger.now
	generation uint64        // rises with every end, and every answer that is lost
	unknown    int           // claims whose outcome is unknown
	live       int           // claims that count
	calls      int           // in flight; as long as there are some, the session is kept
	counted    bool          // as a session
	over       bool          // the identity has forgotten it, and everything was given back
}

// counted is a claim as it is counted.
type counted struct {
	change  uint64        // Status.Change of the newest state; 0: none is known
	epoch   uint64        // the latest under which it was claimed
	began   time.Duration // it did not exist before, by Ledger.now
	unknown uint64        // the generation in which an answer was lost; 0: none was
	demand  demand
	queued  []lockkeeper.Path // at which it counts as waiting
	calls   int               // claims in flight
	gone    bool              // it has ended, and no longer counts
}

// finishCall ends a call in flight on s, and unlocks s.
func (s *Session) finishCall() {
	s.calls--
	nothing := s.calls == 0 && !s.counted && !s.over
	s.mu.Unlock()
	if nothing {
		s.identity.discard(s)
	}
}

// confirm counts the session, which turned out to exist.
func (s *Session) confirm() {
	if s.counted || s.over {
		return
	}
	s.counted = true
	s.identity.Give(Sessions, -1)
	s.extend(lockkeeper.DefaultTTL) // until a lease states it
}

// requested notes that an attach may give the session that TTL.
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

// extend notes that the session lives so long from now on, unless it is renewed; 0 is without
// end. Only an end takes back what was promised before (R11).
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

// living reports whether st is a claim that counts.
func living(st *lockkeeper.Status) bool {
	return st.State == lockkeeper.Waiting || st.State == lockkeeper.Held
}

// update applies a state of the claim that counts as c.
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

// demandOf is what counts of the claim with the status st.
func demandOf(st *lockkeeper.Status) demand {
	d := demand{claims: 1, paths: len(st.Grants)}
	if st.State == lockkeeper.Waiting {
		d.waiting = 1
	}
	return d
}

// become has c count as what it has turned out to be.
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

// leaveQueues has c no longer count as waiting at its paths.
func (s *Session) leaveQueues(c *counted) {
	s.identity.ledger.queues.leave(c.queued)
	c.queued = nil
}

// learn is update for a claim that may not be counted yet. If the status is fresh, it is counted
// from now on.
func (s *Session) learn(st *lockkeeper.Status, epoch uint64, fresh bool) {
	c, known := s.claims[st.Ref.ID]
	switch {
	case known:
		s.update(c, st)
	case fresh && living(st):
		c = counted{change: st.Change, epoch: epoch, began: longAgo}
		s.become(&c, st)
		s.put(st.Ref.ID, c)
	}
}

// put keeps c, if it is of any use.
func (s *Session) put(id uint64, c counted) {
	if c.gone && c.calls == 0 {
		delete(s.claims, id)
		return
	}
	s.claims[id] = c
}

// release has c no longer count, since it has ended.
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

// lost notes that an answer about c was lost.
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

// known notes that the outcome of c is known.
func (s *Session) known(c *counted) {
	if c.unknown != 0 {
		c.unknown = 0
		s.unknown--
	}
}

// longAgo is when a claim may have begun that existed already.
const longAgo = math.MinInt64 / 2

// reconcile releases claims whose outcome is unknown and that a lease does not list. The lease
// was requested in that generation, and would list them if they had been made within the TTL
// before.
func (s *Session) reconcile(generation uint64) {
	if s.unknown == 0 {
		return
	}
	now := s.identity.ledger.now()
	for id, c := range s.claims {
		if c.unknown != 0 && c.unknown <= generation && c.calls == 0 && now-c.began <= s.shortest {
			s.release(&c)
			s.put(id, c)
		}
	}
}

// uncertain reports whether the engine may have done what ended with err.
func uncertain(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return false
		}
	}
	return true
}

// refusals are errors with which an engine has changed nothing.
var refusals = [...]error{
	lockkeeper.ErrSession, lockkeeper.ErrNotHeld, lockkeeper.ErrInvalid, lockkeeper.ErrDenied,
	lockkeeper.ErrUnsupported, lockkeeper.ErrNotAcquired,
}
