// Package attached keeps the sessions that are attached through one process: whom to notify of
// each, under which epoch, and until when it lives unless it is renewed.
//
//	       Begin ── Granted ──┐
//	none ─────────────────────┴> attached ── Renew (same epoch) ──> attached
//	  │              Put             │
//	  │                              └ Remove (not if attached again since), Sweep ──> none
//	  └ Begin ── Refused ──> none
//
// An attach replaces an earlier one of the same session. An engine that knows the outcome of an
// attach before anybody is notified of it uses Put. The network client does not: notifications may
// overtake the answer, and a refused attach must change nothing. So it uses Begin, and until the
// answer both the caller and the current owner are notified.
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

// Attachment is a session that is attached here. X is what its owner keeps beside.
type Attachment[X any] struct {
	Epoch  uint64 // that the attach gave
	Order  uint64 // a later attach of a session has a higher one, or the same
	TTL    time.Duration
	Until  time.Time // the session has ended then, or is attached elsewhere, unless it was renewed
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

// Notify returns whom to notify of a session; nil if nobody.
func (s *Sessions[X]) Notify(id string) Notify {
	if a := s.all[id]; a != nil {
		return a.Notify
	}
	return nil
}

// Put attaches a session, unless a later attach is there. It returns the attachment that counts.
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

// Renew sets until when a session lives, unless another attach is there.
func (s *Sessions[X]) Renew(id string, epoch uint64, until time.Time) {
	if a := s.all[id]; a != nil && a.Epoch == epoch {
		a.Until = until
	}
}

// Remove removes a session, unless an attach with a higher epoch is there. It returns the
// attachment that it removed; nil if none.
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

// smallSweep is how many sessions may be there without a sweep.
const smallSweep = 64

// Sweep removes the sessions that have ended. It looks only when the number of sessions has doubled
// since it last looked, so its cost is that of the attaches.
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

// Granted attaches the session, unless an attach that was begun later was granted before.
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

// Notifies returns whom to notify of a session: its owner, and the callers of attaches in flight.
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

// Everybody returns whom to notify of any session.
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
