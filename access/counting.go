package access

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// What each call of the engine means for what counts. What begins before a call
// leaves it in flight on a seat; what takes in its answer ends that.

// attaches counts the session before it is attached for ttl. first says that it was
// not counted before.
func (a *account) attaches(session string, ttl time.Duration, most int) (s *seat, first bool, err error) {
	for tried := false; ; tried = true {
		s := a.seat(session)
		if s.counted {
			s.asks(ttl)
			s.mu.Unlock()
			return s, false, nil
		}
		err := a.takeSession(most)
		if err == nil {
			s.counted = true
			s.asks(ttl)
			s.mu.Unlock()
			return s, true, nil
		}
		s.leave()
		if tried {
			return nil, false, err
		}
		a.makeRoom()
	}
}

// attached takes in the answer to an attach that asked for ttl.
func (s *seat) attached(lease *lockkeeper.Lease, ttl time.Duration, first bool, err error) {
	s.mu.Lock()
	if s.over && err == nil { // what was the session before has left
		s.leave()
		s = s.account.seat(s.session)
	}
	defer s.leave()
	switch {
	case err == nil:
		s.confirm()
		s.asks(ttl)
		if lease.Key.Epoch > s.taken { // else a later one was answered first
			s.taken, s.epoch = lease.Key.Epoch, max(s.epoch, lease.Key.Epoch)
			s.extend(lease.TTL)
			s.takeOver(lease)
		}
	case s.over || !s.counted:
	case uncertain(err):
		s.extend(s.longest) // it may be open, or promised more
	case first && s.epoch == 0:
		s.counted = false
		s.account.giveSession()
	}
}

// takeOver leaves the claims that the lease of an attach tells, which are all that
// the session had then.
func (s *seat) takeOver(lease *lockkeeper.Lease) {
	told := make(map[uint64]struct{}, len(lease.Claims))
	for i := range lease.Claims {
		st := &lease.Claims[i]
		told[st.Ref.ID] = struct{}{}
		s.learn(st, lease.Key.Epoch, true)
	}
	for id, c := range s.claims {
		if _, ok := told[id]; !ok && c.epoch < lease.Key.Epoch {
			s.giveBack(&c)
			s.put(id, c)
		}
	}
}

// renews begins a renewal. The turn tells what is old when it is answered.
func (a *account) renews(session string) (s *seat, turn uint64) {
	if s = a.find(session); s != nil {
		turn = s.turn
		s.mu.Unlock()
	}
	return s, turn
}

// renewed takes in the answer. s is of renews, and may be nil.
func (a *account) renewed(s *seat, session string, turn uint64, lease *lockkeeper.Lease, err error) {
	switch {
	case s == nil && err != nil:
		return
	case s == nil:
		s = a.seat(session)
	default:
		s.mu.Lock()
	}
	defer s.leave()
	if err != nil && s.counted && uncertain(err) {
		s.extend(s.longest)
	}
	if err != nil || s.over || lease.Key.Epoch < s.epoch {
		return
	}
	s.epoch = lease.Key.Epoch
	s.confirm()
	s.extend(lease.TTL)
	fresh := s.turn == turn
	for i := range lease.Claims {
		s.learn(&lease.Claims[i], lease.Key.Epoch, fresh)
	}
	s.settle(turn)
}

// claims counts the claim that w describes before the engine is asked for it, unless
// it counts already.
func (a *account) claims(k lockkeeper.Key, w *lockkeeper.Want, q, total *Quota) (*seat, error) {
	for tried := false; ; tried = true {
		s := a.seat(k.Session)
		c, known := s.claims[w.ID]
		if !known || c.gone {
			c = counted{began: s.leased, calls: c.calls}
		}
		more := c.more(w)
		if err := a.take(more, q, total); err != nil {
			s.leave()
			if tried {
				return nil, err
			}
			a.makeRoom()
			continue
		}
		c.demand = c.demand.plus(more)
		c.calls++
		c.epoch = max(c.epoch, k.Epoch)
		s.claims[w.ID] = c
		s.mu.Unlock()
		return s, nil
	}
}

// more is what w may need beyond what counts. Of a claim of which nothing was seen
// yet each call may be the one that makes it, whatever the others ask for.
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

func (d demand) plus(e demand) demand {
	return demand{d.claims + e.claims, d.waiting + e.waiting, d.paths + e.paths}
}

func (d demand) minus(e demand) demand {
	return demand{d.claims - e.claims, d.waiting - e.waiting, d.paths - e.paths}
}

// answered takes in the answer to a claim.
func (s *seat) answered(k lockkeeper.Key, id uint64, st *lockkeeper.Status, err error) {
	s.mu.Lock()
	c := s.claims[id]
	c.calls--
	switch {
	case s.over:
		s.put(id, c)
		if later := k.Epoch > s.epoch; later && err == nil && living(st) { // than the one that has left
			s.leave()
			s = s.account.seat(s.session)
			s.confirm()
			s.learn(st, k.Epoch, true)
		}
	case err == nil:
		s.epoch = max(s.epoch, k.Epoch)
		s.confirm()
		s.see(c, st)
	case uncertain(err):
		s.doubt(&c)
		s.put(id, c)
	default:
		if c.calls == 0 && c.change == 0 && c.unsure == 0 {
			s.giveBack(&c)
		}
		s.put(id, c)
	}
	s.leave()
}

// ended takes in the answer to an ending.
func (a *account) ended(session string, k lockkeeper.Key, e lockkeeper.Ending, err error) {
	s := a.find(session)
	if s == nil {
		return
	}
	leaves := e.Kind == lockkeeper.Leave && err == nil && k.Epoch >= s.epoch
	if c, ok := s.claims[e.ID]; ok && e.Kind == lockkeeper.Release {
		switch {
		case err == nil, c.calls == 0 && errors.Is(err, lockkeeper.ErrNotHeld):
			s.giveBack(&c)
		case uncertain(err):
			s.doubt(&c)
		}
		s.put(e.ID, c)
	}
	s.leave()
	if leaves {
		a.left(s, k.Epoch)
	}
}

// left forgets the seat of a session that has left under that epoch.
func (a *account) left(s *seat, epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch >= s.epoch && !s.over {
		s.epoch = epoch
		a.remove(s)
	}
}

// told takes in a hint. What it does not know was never counted, or has ended.
func (a *account) told(session string, all []lockkeeper.Status) {
	s := a.find(session)
	if s == nil {
		return
	}
	for i := range all {
		if c, ok := s.claims[all[i].Ref.ID]; ok {
			s.see(c, &all[i])
		}
	}
	s.leave()
}
