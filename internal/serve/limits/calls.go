package limits

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The methods here count what each engine call changes. The caller calls the method named …ing
// before the engine call, which is then in flight on a session. It passes the answer to the method
// named …ed, which ends the call in flight.

// Attaching counts the session before it is attached for ttl. Attached compares the generation to
// find changes since then.
func (i *Identity) Attaching(session string, ttl time.Duration, q *Quota) (s *Session, generation uint64, err error) {
	for tried := false; ; tried = true {
		s := i.session(session)
		var err error
		if !s.counted {
			err = i.take(Sessions, 1, q.Sessions)
		}
		if err == nil {
			s.counted = true
			s.attaching++
			s.requested(ttl)
			generation = s.generation
			s.mu.Unlock()
			return s, generation, nil
		}
		s.finishCall()
		if tried {
			return nil, 0, err
		}
		i.expireSessions()
	}
}

// Keeps reports whether the session counts with that TTL, or a longer one; 0: without end.
func (i *Identity) Keeps(session string, ttl time.Duration) bool {
	s := i.find(session)
	if s == nil {
		return false
	}
	defer s.finishCall()
	return s.counted && s.until > i.ledger.now() &&
		(s.longest == lockkeeper.Forever || ttl != 0 && ttl <= s.longest)
}

// Attached applies the answer to an attach. The generation is that of Attaching.
func (s *Session) Attached(lease *lockkeeper.Lease, generation uint64, err error) {
	s.mu.Lock()
	defer s.finishCall()
	s.attaching--
	switch epoch := lease.Key.Epoch; {
	case s.ended(epoch):
	case err == nil:
		s.confirm()
		s.resolveAttach(generation)
		if epoch > s.taken { // else the answer to a later attach came first
			s.taken, s.epoch = epoch, max(s.epoch, epoch)
			s.extend(lease.TTL)
			s.adopt(lease, generation)
		}
	case uncertain(err):
		s.generation++
		s.lostAttach = s.generation
		s.extend(s.longest) // the session may be open, or have a longer TTL
	}
}

// resolveAttach records that the session is known, by a lease requested in that generation.
func (s *Session) resolveAttach(generation uint64) {
	if s.lostAttach <= generation {
		s.lostAttach = 0
	}
}

// adopt keeps only the claims that the lease of an attach lists: the session had no others then.
func (s *Session) adopt(lease *lockkeeper.Lease, generation uint64) {
	listed := make(map[uint64]struct{}, len(lease.Claims))
	for n := range lease.Claims {
		st := &lease.Claims[n]
		listed[st.Ref.ID] = struct{}{}
		s.updateOrAdd(st, lease.Key.Epoch, generation, true)
	}
	for id, c := range s.claims.all() {
		if _, ok := listed[id]; !ok && c.epoch < lease.Key.Epoch && c.opening == 0 {
			s.release(&c)
			s.put(id, c)
		}
	}
}

// Renewing begins a renewal. Renewed compares the generation to find changes since the request.
func (i *Identity) Renewing(session string) (s *Session, generation uint64) {
	if s = i.find(session); s != nil {
		generation = s.generation
		s.mu.Unlock()
	}
	return s, generation
}

// Renewed applies the answer to a renewal. s comes from Renewing, and may be nil.
func (i *Identity) Renewed(s *Session, session string, generation uint64, lease *lockkeeper.Lease, err error) {
	switch {
	case s == nil && err != nil:
		return
	case s == nil:
		s = i.session(session)
	default:
		s.mu.Lock()
	}
	defer s.finishCall()
	if err != nil && s.counted && uncertain(err) {
		s.extend(cmp.Or(s.longest, lockkeeper.DefaultTTL))
	}
	if err != nil || lease.Key.Epoch < s.epoch || s.ended(lease.Key.Epoch) {
		return
	}
	s.epoch = lease.Key.Epoch
	s.confirm()
	s.resolveAttach(generation)
	s.extend(lease.TTL)
	fresh := s.generation == generation
	for n := range lease.Claims {
		s.updateOrAdd(&lease.Claims[n], lease.Key.Epoch, generation, fresh)
	}
	s.reconcile(generation)
}

// Claiming counts the claim that w describes before the engine call, unless it is counted already.
// A nil quota refuses nothing.
func (i *Identity) Claiming(k lockkeeper.Key, w *lockkeeper.Want, q *Quota) (*Session, error) {
	return i.claiming(k, w, q, 0)
}

// claiming is Claiming for a call that opens the session if opening is 1, and else 0.
func (i *Identity) claiming(k lockkeeper.Key, w *lockkeeper.Want, q *Quota, opening int) (*Session, error) {
	for tried := false; ; tried = true {
		s := i.session(k.Session)
		c, known := s.claims.get(w.ID)
		if !known || c.gone {
			c = counted{began: s.leased, calls: c.calls, opening: c.opening}
		}
		stale := c.change != 0 && (opening > 0 || k.Epoch != c.epoch)
		if stale {
			c.change = 0 // what is known is of another epoch, and so perhaps of another claim
		}
		if err := s.take(&c, w, q); err != nil {
			s.finishCall()
			if tried {
				return nil, err
			}
			i.expireSessions()
			continue
		}
		if stale {
			s.lost(&c)
		}
		c.calls++
		c.opening += opening
		c.epoch = max(c.epoch, k.Epoch)
		s.claims.set(w.ID, c)
		s.mu.Unlock()
		return s, nil
	}
}

// take counts what w may need beyond the present demand of c.
func (s *Session) take(c *counted, w *lockkeeper.Want, q *Quota) error {
	more := c.more(w)
	if q != nil && more.claims > 0 {
		most := q.SessionClaims
		if most == 0 {
			most = s.identity.ledger.bounds.SessionClaims
		}
		if most > 0 && s.live+more.claims > most {
			return refused("session %q has %d claims, which is the most that one session may have: "+
				"release some, or open another session", s.id, s.live)
		}
	}
	if err := s.identity.takeDemand(more, q); err != nil {
		return err
	}
	if more.waiting > 0 {
		queued := make([]lockkeeper.Path, len(w.Targets))
		for n := range w.Targets {
			queued[n] = w.Targets[n].Path
		}
		most := 0
		if q != nil {
			most = s.identity.ledger.bounds.WaitingPerPath
		}
		if full, ok := s.identity.ledger.queues.join(queued, most); !ok {
			s.identity.giveDemand(more)
			err := refused("%d claims wait for %q, which is the most that may wait for one path: try again later",
				most, full).(*lockkeeper.Error)
			err.Path = full
			return err
		}
		c.queued = queued
	}
	s.live += more.claims
	c.demand = c.demand.plus(more)
	return nil
}

// more returns what w may need beyond the present demand. While the state of a claim is unknown,
// each call may be the one that creates it.
func (c *counted) more(w *lockkeeper.Want) demand {
	if c.change != 0 {
		return demand{}
	}
	need := demand{claims: 1, paths: max(len(w.Targets), c.demand.paths), waiting: c.demand.waiting}
	if w.Wait != 0 {
		need.waiting = 1
	}
	return need.minus(c.demand)
}

// Claimed applies the answer to a claim.
func (s *Session) Claimed(k lockkeeper.Key, id uint64, st *lockkeeper.Status, err error) {
	s.mu.Lock()
	c, _ := s.claims.get(id)
	c.calls--
	switch {
	case s.ended(k.Epoch), err != nil && !uncertain(err):
		if c.calls == 0 && c.change == 0 && c.unknown == 0 {
			s.release(&c)
		}
		s.put(id, c)
	case err != nil, c.later(k):
		s.confirm()
		s.lost(&c)
		s.put(id, c)
	default:
		s.epoch = max(s.epoch, k.Epoch)
		s.confirm()
		s.update(c, st)
	}
	s.finishCall()
}

// later reports whether a call in flight may make the claim under a later epoch than k's.
func (c *counted) later(k lockkeeper.Key) bool {
	return c.calls > 0 && (c.opening > 0 || k.Epoch < c.epoch)
}

// An Opening is a call in flight that opens a session together with its first claim.
type Opening struct {
	session    *Session
	generation uint64
	id         uint64
}

// Opening counts a session before it is attached for ttl, and the claim that w describes. After an
// error it has counted nothing.
func (i *Identity) Opening(session string, ttl time.Duration, w *lockkeeper.Want, q *Quota) (Opening, error) {
	s, generation, err := i.Attaching(session, ttl, q)
	if err != nil {
		return Opening{}, err
	}
	if _, err = i.claiming(lockkeeper.Key{Session: session}, w, q, 1); err != nil {
		s.Attached(&lockkeeper.Lease{}, generation, err)
		return Opening{}, err
	}
	return Opening{s, generation, w.ID}, nil
}

// Opened applies the answer, a lease with the status of the claim.
func (o Opening) Opened(lease *lockkeeper.Lease, err error) {
	o.session.opened(lease, o.id, err)
	o.session.Attached(lease, o.generation, err)
	var st lockkeeper.Status
	for n := range lease.Claims {
		if lease.Claims[n].Ref.ID == o.id {
			st = lease.Claims[n]
		}
	}
	o.session.Claimed(lockkeeper.Key{Session: o.session.id, Epoch: lease.Key.Epoch}, o.id, &st, err)
}

// opened states the epoch of a claim that a call has opened the session with. Until then no attach
// that is answered late decides that the session does not have the claim.
func (s *Session) opened(lease *lockkeeper.Lease, id uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims.get(id)
	if !ok {
		return
	}
	c.opening--
	if lease.Key.Epoch == 0 && err != nil && uncertain(err) {
		c.epoch = math.MaxUint64 // unknown, so only a renewal or the end of the session shows that it is gone
	}
	c.epoch = max(c.epoch, lease.Key.Epoch)
	if c.epoch < s.taken && lease.Key.Epoch != 0 && c.change == 0 && c.opening == 0 {
		s.release(&c) // a later attach did not list it
	}
	s.claims.set(id, c)
}

// Ending begins an ending. Ended compares the generation to find changes since the request.
func (i *Identity) Ending(session string) (s *Session, generation uint64) { return i.Renewing(session) }

// Ended applies the answer to an ending. s comes from Ending, and may be nil.
func (i *Identity) Ended(s *Session, generation uint64, k lockkeeper.Key, e lockkeeper.Ending, err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	leaves := e.Kind == lockkeeper.Leave && err == nil && k.Epoch >= s.epoch
	id := e.ID
	if e.Kind == lockkeeper.Lapsed {
		id = e.Lapse.ID
	}
	if c, ok := s.claims.get(id); ok && (e.Kind == lockkeeper.Release || e.Kind == lockkeeper.Lapsed) {
		missing := errors.Is(err, lockkeeper.ErrNotHeld)
		switch {
		case err == nil && e.Kind == lockkeeper.Lapsed: // it ends later, with a notification
		case err == nil && c.opening == 0 && k.Epoch >= c.epoch, missing && c.lostBefore(generation):
			s.release(&c)
		case err == nil, missing, uncertain(err): // the claim may have been made since
			s.lost(&c)
		}
		s.put(id, c)
	}
	if leaves {
		s.leave(k.Epoch)
	}
	s.finishCall()
}

// Notified applies notifications. An unknown claim was never counted, or has ended.
func (i *Identity) Notified(session string, all []lockkeeper.Status) {
	s := i.find(session)
	if s == nil {
		return
	}
	for n := range all {
		if c, ok := s.claims.get(all[n].Ref.ID); ok {
			s.update(c, &all[n])
		}
	}
	s.finishCall()
}

// Remembered removes expired sessions, and returns how many sessions and claims remain in memory.
func (i *Identity) Remembered() (sessions, claims int) {
	i.expireSessions()
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, s := range i.sessions {
		s.mu.Lock()
		claims += s.claims.len()
		s.mu.Unlock()
	}
	return len(i.sessions), claims
}
