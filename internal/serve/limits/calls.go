package limits

import (
	"errors"
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The methods here count what each engine call changes. The caller calls the method named …ing
// before the engine call, which is then in flight on a session. It passes the answer to the method
// named …ed, which ends the call in flight.

// Attaching counts the session before it is attached for ttl. first reports that the session was
// not counted before.
func (i *Identity) Attaching(session string, ttl time.Duration, q *Quota) (s *Session, first bool, err error) {
	for tried := false; ; tried = true {
		s := i.session(session)
		if s.counted {
			s.requested(ttl)
			s.mu.Unlock()
			return s, false, nil
		}
		err := i.take(Sessions, 1, q.Sessions)
		if err == nil {
			s.counted = true
			s.requested(ttl)
			s.mu.Unlock()
			return s, true, nil
		}
		s.finishCall()
		if tried {
			return nil, false, err
		}
		i.expireSessions()
	}
}

// Attached applies the answer to an attach that requested ttl.
func (s *Session) Attached(lease *lockkeeper.Lease, ttl time.Duration, first bool, err error) {
	s.mu.Lock()
	if s.over && err == nil { // the former session of this id has ended
		s.finishCall()
		s = s.identity.session(s.id)
	}
	defer s.finishCall()
	switch {
	case err == nil:
		s.confirm()
		s.requested(ttl)
		if lease.Key.Epoch > s.taken { // else the answer to a later attach came first
			s.taken, s.epoch = lease.Key.Epoch, max(s.epoch, lease.Key.Epoch)
			s.extend(lease.TTL)
			s.adopt(lease)
		}
	case s.over || !s.counted:
	case uncertain(err):
		s.extend(s.longest) // the session may be open, or have a longer TTL
	case first && s.epoch == 0:
		s.counted = false
		s.identity.Give(Sessions, 1)
	}
}

// adopt keeps only the claims that the lease of an attach lists: the session had no others then.
func (s *Session) adopt(lease *lockkeeper.Lease) {
	listed := make(map[uint64]struct{}, len(lease.Claims))
	for n := range lease.Claims {
		st := &lease.Claims[n]
		listed[st.Ref.ID] = struct{}{}
		s.updateOrAdd(st, lease.Key.Epoch, true)
	}
	for id, c := range s.claims {
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
		s.extend(s.longest)
	}
	if err != nil || s.over || lease.Key.Epoch < s.epoch {
		return
	}
	s.epoch = lease.Key.Epoch
	s.confirm()
	s.extend(lease.TTL)
	fresh := s.generation == generation
	for n := range lease.Claims {
		s.updateOrAdd(&lease.Claims[n], lease.Key.Epoch, fresh)
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
		c, known := s.claims[w.ID]
		if !known || c.gone {
			c = counted{began: s.leased, calls: c.calls, opening: c.opening}
		}
		if err := s.take(&c, w, q); err != nil {
			s.finishCall()
			if tried {
				return nil, err
			}
			i.expireSessions()
			continue
		}
		c.calls++
		c.opening += opening
		c.epoch = max(c.epoch, k.Epoch)
		s.claims[w.ID] = c
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
	c := s.claims[id]
	c.calls--
	switch {
	case s.over:
		s.put(id, c)
		if later := k.Epoch > s.epoch; later && err == nil && living(st) { // a claim of the next session of this id
			s.finishCall()
			s = s.identity.session(s.id)
			s.confirm()
			s.updateOrAdd(st, k.Epoch, true)
		}
	case err == nil:
		s.epoch = max(s.epoch, k.Epoch)
		s.confirm()
		s.update(c, st)
	case uncertain(err):
		s.lost(&c)
		s.put(id, c)
	default:
		if c.calls == 0 && c.change == 0 && c.unknown == 0 {
			s.release(&c)
		}
		s.put(id, c)
	}
	s.finishCall()
}

// An Opening is a call in flight that opens a session together with its first claim.
type Opening struct {
	session, claimed *Session // the same, unless the former session of this id has ended between the two
	ttl              time.Duration
	first            bool
	id               uint64
}

// Opening counts a session before it is attached for ttl, and the claim that w describes. After an
// error it has counted nothing.
func (i *Identity) Opening(session string, ttl time.Duration, w *lockkeeper.Want, q *Quota) (*Opening, error) {
	o := &Opening{ttl: ttl, id: w.ID}
	var err error
	if o.session, o.first, err = i.Attaching(session, ttl, q); err != nil {
		return nil, err
	}
	if o.claimed, err = i.claiming(lockkeeper.Key{Session: session}, w, q, 1); err != nil {
		o.session.Attached(&lockkeeper.Lease{}, ttl, o.first, err)
		return nil, err
	}
	return o, nil
}

// Opened applies the answer, a lease with the status of the claim.
func (o *Opening) Opened(lease *lockkeeper.Lease, err error) {
	o.claimed.opened(lease, o.id, err)
	o.session.Attached(lease, o.ttl, o.first, err)
	var st lockkeeper.Status
	for n := range lease.Claims {
		if lease.Claims[n].Ref.ID == o.id {
			st = lease.Claims[n]
		}
	}
	o.claimed.Claimed(lockkeeper.Key{Session: o.claimed.id, Epoch: lease.Key.Epoch}, o.id, &st, err)
}

// opened states the epoch of a claim that a call has opened the session with. Until then no attach that
// is answered late decides that the session does not have the claim.
func (s *Session) opened(lease *lockkeeper.Lease, id uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims[id]
	if !ok || s.over {
		return
	}
	c.opening--
	switch epoch := lease.Key.Epoch; {
	case epoch == 0 && err != nil && uncertain(err):
		c.epoch = math.MaxUint64 // unknown, so only a renewal or the end of the session shows that it is gone
	case epoch < s.taken && epoch != 0 && c.change == 0 && c.opening == 0:
		s.release(&c) // a later attach did not list it
	default:
		c.epoch = max(c.epoch, epoch)
	}
	s.claims[id] = c
}

// Ended applies the answer to an ending.
func (i *Identity) Ended(session string, k lockkeeper.Key, e lockkeeper.Ending, err error) {
	s := i.find(session)
	if s == nil {
		return
	}
	leaves := e.Kind == lockkeeper.Leave && err == nil && k.Epoch >= s.epoch
	id := e.ID
	if e.Kind == lockkeeper.Lapsed {
		id = e.Lapse.ID
	}
	if c, ok := s.claims[id]; ok && (e.Kind == lockkeeper.Release || e.Kind == lockkeeper.Lapsed) {
		switch {
		case err == nil && e.Kind == lockkeeper.Lapsed: // it ends later, with a notification
		case err == nil, c.calls == 0 && errors.Is(err, lockkeeper.ErrNotHeld):
			s.release(&c)
		case uncertain(err):
			s.lost(&c)
		}
		s.put(id, c)
	}
	s.finishCall()
	if leaves {
		i.removeLeft(s, k.Epoch)
	}
}

// removeLeft removes a session that has left under that epoch.
func (i *Identity) removeLeft(s *Session, epoch uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch >= s.epoch && !s.over {
		s.epoch = epoch
		i.remove(s)
	}
}

// Notified applies notifications. An unknown claim was never counted, or has ended.
func (i *Identity) Notified(session string, all []lockkeeper.Status) {
	s := i.find(session)
	if s == nil {
		return
	}
	for n := range all {
		if c, ok := s.claims[all[n].Ref.ID]; ok {
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
		claims += len(s.claims)
		s.mu.Unlock()
	}
	return len(i.sessions), claims
}
