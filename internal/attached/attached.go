// Package attached keeps the sessions that are attached through one process. For each it has the
// epoch, the function to notify, and the time at which the session ends unless it is renewed.
//
//	       Begin ── Granted ──┐
//	none ─────────────────────┴> attached ── Renew (same epoch) ──> attached
//	  │              Put             │
//	  │                              └ Remove (not if attached again since), Sweep ──> none
//	  └ Begin ── Refused ──> none
//
// An attach replaces an earlier one of the same session. An engine that knows the outcome of an
// attach before it sends any notification uses Put. The network client does not know it:
// notifications may overtake the answer, and a refused attach must change nothing. So it uses
// Begin, and notifies both the caller and the current owner until the answer arrives.
//
// The keeper, sqllock and sqlitelock use Put; the network client uses Begin; the server uses Put,
// and keeps with each session the connection that its notifications go to.
package attached

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Notify receives changes to claims of a session. It may be nil.
type Notify = func([]lockkeeper.Status)

// Attachment is a session that is attached here. X is the type of Own, the data of the package that
// uses Sessions.
type Attachment[X any] struct {
	Epoch  uint64 // from the answer to the attach
	Order  uint64 // the attachment with the highest counts; of equal ones, the last
	TTL    time.Duration
	Until  time.Time // unless renewed, the session has ended by then, or is attached elsewhere
	Notify Notify
	Own    X
}

// Sessions are the sessions attached here, by their ids. It is not safe for concurrent use: the
// mutex of its owner guards it. The zero value has no sessions.
type Sessions[X any] struct {
	all     map[string]*Attachment[X]
	pending map[string][]*Pending[X]
	begun   uint64 // attaches begun by Begin
	swept   int    // sessions that the last Sweep left
}

// Len returns the number of sessions.
func (s *Sessions[X]) Len() int { return len(s.all) }

// All yields the sessions, in no order. The caller may remove them meanwhile.
func (s *Sessions[X]) All() iter.Seq2[string, *Attachment[X]] { return maps.All(s.all) }

// Get returns the attachment of a session; nil if it is not attached here.
func (s *Sessions[X]) Get(id string) *Attachment[X] { return s.all[id] }

// Notify returns the function of the owner of a session; nil if there is none.
func (s *Sessions[X]) Notify(id string) Notify {
	if a := s.all[id]; a != nil {
		return a.Notify
	}
	return nil
}

// Put attaches a session, unless it has an attachment with a higher Order. It returns the
// attachment in force.
func (s *Sessions[X]) Put(id string, a *Attachment[X]) *Attachment[X] {
	if old := s.all[id]; old != nil && old.Order > a.Order {
		return old
	}
	if s.all == nil {
		s.all = make(map[string]*Attachment[X])
	}
	s.all[id] = a
	return a
}

// Renew sets Until of a session, if its attachment has that epoch.
func (s *Sessions[X]) Renew(id string, epoch uint64, until time.Time) {
	if a := s.all[id]; a != nil && a.Epoch == epoch {
		a.Until = until
	}
}

// Remove removes a session, unless its attachment has a higher epoch. It returns the attachment
// that it removed; nil if none.
func (s *Sessions[X]) Remove(id string, epoch uint64) *Attachment[X] {
	a := s.all[id]
	if a == nil || a.Epoch > epoch {
		return nil
	}
	delete(s.all, id)
	return a
}

// Expired yields the sessions that were not renewed in time, in no order.
func (s *Sessions[X]) Expired(now time.Time) iter.Seq2[string, *Attachment[X]] {
	return func(yield func(string, *Attachment[X]) bool) {
		for id, a := range s.all {
			if a.Until.Before(now) && !yield(id, a) {
				return
			}
		}
	}
}

// smallSweep is the number of sessions up to which Sweep does nothing.
const smallSweep = 64

// Sweep removes the sessions for which ended returns true. It does nothing until their number has
// doubled since the last sweep, so the cost for each attach is constant on average.
func (s *Sessions[X]) Sweep(ended func(id string, a *Attachment[X]) bool) {
	if len(s.all) <= 2*s.swept+smallSweep {
		return
	}
	maps.DeleteFunc(s.all, ended)
	s.swept = len(s.all)
}

// Clear removes all sessions.
func (s *Sessions[X]) Clear() {
	clear(s.all)
	clear(s.pending)
}

// Pending is an attach in flight.
type Pending[X any] struct {
	sessions *Sessions[X]
	id       string
	order    uint64
	notify   Notify
}

// Begin begins an attach of a session. The caller must call Granted or Refused.
func (s *Sessions[X]) Begin(id string, notify Notify) *Pending[X] {
	s.begun++
	p := &Pending[X]{s, id, s.begun, notify}
	if s.pending == nil {
		s.pending = make(map[string][]*Pending[X])
	}
	s.pending[id] = append(s.pending[id], p)
	return p
}

// Granted attaches the session, unless an attach that was begun later has been granted already.
func (p *Pending[X]) Granted(epoch uint64, ttl time.Duration, until time.Time) {
	p.Refused()
	p.sessions.Put(p.id, &Attachment[X]{Epoch: epoch, Order: p.order, TTL: ttl, Until: until, Notify: p.notify})
}

// Refused ends the attach without effect.
func (p *Pending[X]) Refused() {
	left := slices.DeleteFunc(p.sessions.pending[p.id], func(other *Pending[X]) bool { return other == p })
	if p.sessions.pending[p.id] = left; len(left) == 0 {
		delete(p.sessions.pending, p.id)
	}
}

// Notifies returns the functions to call with changes of a session: that of its owner, and those of
// the attaches in flight.
func (s *Sessions[X]) Notifies(id string) (all []Notify) {
	if notify := s.Notify(id); notify != nil {
		all = append(all, notify)
	}
	for _, p := range s.pending[id] {
		if p.notify != nil {
			all = append(all, p.notify)
		}
	}
	return all
}

// Everybody returns the functions of Notifies for all sessions.
func (s *Sessions[X]) Everybody() (all []Notify) {
	for id := range s.all {
		all = append(all, s.Notifies(id)...)
	}
	for id := range s.pending {
		if s.all[id] == nil {
			all = append(all, s.Notifies(id)...)
		}
	}
	return all
}
