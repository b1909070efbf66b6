package access

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A seat counts what one session has. Where it can't be sure it counts too much
// rather than too little.
//
// Answers of the engine, hints and leases come in any order. So the state of a claim
// goes by Status.Change, an end is final, and one that ended is kept in mind as long
// as calls about it are in flight. A lease, which may have been overtaken, makes
// nothing count that it does not know, if something has ended since it was asked for.
type seat struct {
	account *account
	session string

	mu       sync.Mutex // guards all below
	claims   map[uint64]counted
	epoch    uint64        // the latest that is known; 0: none is
	taken    uint64        // the latest of which the attach was answered here; 0: none was
	shortest time.Duration // TTL of those that were asked for; 0: not known, or one without end
	longest  time.Duration // likewise; lockkeeper.Forever: one without end
	leased   time.Duration // when it was attached, renewed or found to be there last, by totals.now
	until    time.Duration // when the session is over at the latest unless it is renewed, by totals.now
	turn     uint64        // rises with every end, and every answer that is lost
	doubts   int           // claims with an unsure
	calls    int           // in flight; with some, the seat stays
	counted  bool          // as a session
	over     bool          // it is in the account no more, and all is given back
}

// counted is a claim as it is counted.
type counted struct {
	change uint64        // Status.Change of what was seen last; 0: nothing was seen
	epoch  uint64        // the latest under which it was claimed
	began  time.Duration // it was not there before, by totals.now
	unsure uint64        // the turn in which an answer was lost; 0: none was
	demand demand
	calls  int  // claims in flight
	gone   bool // it has ended, and counts no more
}

// leave ends a call that is in flight on s, and unlocks s.
func (s *seat) leave() {
	s.calls--
	nothing := s.calls == 0 && !s.counted && !s.over
	s.mu.Unlock()
	if nothing {
		s.account.discard(s)
	}
}

// confirm counts the session, which is there as it has turned out.
func (s *seat) confirm() {
	if s.counted || s.over {
		return
	}
	s.counted = true
	s.account.sessions.take(1, 0)
	s.account.totals.sessions.take(1, 0)
	s.extend(lockkeeper.DefaultTTL) // until a lease tells
}

// asks notes that the session may get that TTL by an attach.
func (s *seat) asks(ttl time.Duration) {
	switch {
	case ttl == 0:
		s.shortest, s.longest = 0, lockkeeper.Forever
	case s.longest == 0:
		s.shortest, s.longest = ttl, ttl
	default:
		s.shortest, s.longest = min(s.shortest, ttl), max(s.longest, ttl)
	}
}

// extend notes that the session lives so long from now on, unless it is renewed; 0
// is for ever. Only an end takes back what was promised before (R11).
func (s *seat) extend(ttl time.Duration) {
	s.leased = s.account.totals.now()
	until := lockkeeper.Forever
	if ttl > 0 && ttl < lockkeeper.Forever {
		until = s.leased + ttl
	}
	if s.until == lockkeeper.Forever || s.until < until {
		s.until = until
	}
	s.account.expect(s.until)
}

// living reports whether st is a claim that counts.
func living(st *lockkeeper.Status) bool {
	return st.State == lockkeeper.Waiting || st.State == lockkeeper.Held
}

// see takes in what is told of a claim that counts as c.
func (s *seat) see(c counted, st *lockkeeper.Status) {
	switch {
	case !living(st):
		s.giveBack(&c)
	case !c.gone && st.Change >= c.change:
		s.sure(&c)
		c.change = st.Change
		s.become(&c, demandOf(st))
	}
	s.put(st.Ref.ID, c)
}

// demandOf is what counts of the claim that st tells of.
func demandOf(st *lockkeeper.Status) demand {
	d := demand{claims: 1, paths: len(st.Grants)}
	if st.State == lockkeeper.Waiting {
		d.waiting = 1
	}
	return d
}

// become has c count as what it has turned out to be.
func (s *seat) become(c *counted, d demand) {
	_ = s.account.take(d.minus(c.demand), &noBound, &noBound) // without a bound it refuses nothing
	c.demand = d
}

// learn is see, of a claim that may not be counted yet: it is from now on, if it is
// fresh that it lives.
func (s *seat) learn(st *lockkeeper.Status, epoch uint64, fresh bool) {
	c, known := s.claims[st.Ref.ID]
	switch {
	case known:
		s.see(c, st)
	case fresh && living(st):
		c = counted{change: st.Change, epoch: epoch, began: longAgo}
		s.become(&c, demandOf(st))
		s.put(st.Ref.ID, c)
	}
}

// put keeps c, if it is of any use.
func (s *seat) put(id uint64, c counted) {
	if c.gone && c.calls == 0 {
		delete(s.claims, id)
		return
	}
	s.claims[id] = c
}

// giveBack has c count no more, since it has ended.
func (s *seat) giveBack(c *counted) {
	if c.gone {
		return
	}
	s.account.give(c.demand)
	s.sure(c)
	s.turn++
	c.gone = true
}

// doubt notes that an answer about c was lost.
func (s *seat) doubt(c *counted) {
	if c.gone {
		return
	}
	if c.unsure == 0 {
		s.doubts++
	}
	s.turn++
	c.unsure = s.turn
}

// sure ends the doubt about c, if there is any.
func (s *seat) sure(c *counted) {
	if c.unsure != 0 {
		c.unsure = 0
		s.doubts--
	}
}

// longAgo is when what was there already may have begun.
const longAgo = math.MinInt64 / 2

// settle gives back what an answer was lost about, and what the lease, in which it
// would be if it had been made within the TTL before, did not tell. turn is that in
// which the lease was asked for.
func (s *seat) settle(turn uint64) {
	if s.doubts == 0 {
		return
	}
	now := s.account.totals.now()
	for id, c := range s.claims {
		if c.unsure != 0 && c.unsure <= turn && c.calls == 0 && now-c.began <= s.shortest {
			s.giveBack(&c)
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

// refusals are errors of which an engine is sure.
var refusals = [...]error{
	lockkeeper.ErrSession, lockkeeper.ErrNotHeld, lockkeeper.ErrInvalid, lockkeeper.ErrDenied, lockkeeper.ErrUnsupported, lockkeeper.ErrNotAcquired,
}
