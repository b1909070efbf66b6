// Package deadlines is the arithmetic by which a client of an engine decides when it renews its
// session, and when its session and its holds are over. It has no clock: its callers bring their boot
// clocks. The client of the root package counts by it, and so do simulated clients.
//
// An engine ends a session no earlier than a TTL after it received the latest renewal. The client
// ends it at its own deadline, which is earlier (R12):
//
//	client   sent ──┬── RenewAt ──────────────── Deadline
//	                │      = sent + TTL/3 - up to a tenth of that
//	                │                             = sent + TTL - Margin(TTL)
//	engine          └─> received ───────────────────────────── received + TTL
package deadlines

import "time"

// Margin is lockkeeper.Margin.
func Margin(d time.Duration) time.Duration { return d/100 + 10*time.Millisecond }

// RoundTrip returns how long a client of a session waits for the answer to one call, at most that
// bound: then two more calls fit into the TTL. A TTL of 0 is none.
func RoundTrip(ttl, bound time.Duration) time.Duration {
	if ttl == 0 {
		return bound
	}
	return min(bound, ttl/3)
}

// RetryPause returns the pause before a call is repeated: backoff, or less if the TTL is short.
func RetryPause(ttl, backoff time.Duration) time.Duration {
	if ttl == 0 {
		return backoff
	}
	return min(backoff, ttl/6)
}

// A Session is what a client knows of the lease of its session, by its boot clock. The zero value has
// no lease.
type Session struct {
	Alive   bool          // there is a lease whose deadline has not passed
	TTL     time.Duration // as the latest lease stated it; 0: it never passes
	RenewAt time.Duration // with a TTL: the next renewal is due

	sentAt   time.Duration // the latest answered Attach or Renew was sent
	lapsedAt time.Duration // Expire found that the deadline had passed
}

// Extend applies a lease: the answer to an Attach or Renew that left at sent. random returns a
// duration from 0 up to its argument, which is not 0: it spreads the renewals of many clients.
func (s *Session) Extend(sent, ttl time.Duration, random func(time.Duration) time.Duration) {
	s.Alive, s.TTL, s.sentAt = true, ttl, max(s.sentAt, sent)
	if ttl > 0 {
		third := ttl / 3
		s.RenewAt = sent + third - random(third/10) // never later than a third
	}
}

// Deadline returns the moment from which all holds of a session with a TTL are lost.
func (s *Session) Deadline() time.Duration { return s.sentAt + s.TTL - Margin(s.TTL) }

// Expire ends the lease if its deadline has passed, and reports whether it has ended it. Callers call
// it before they extend the lease or use a hold, so that a lost hold stays lost.
func (s *Session) Expire(now time.Duration) bool {
	if s.TTL == 0 || !s.Alive || now < s.Deadline() {
		return false
	}
	s.Alive, s.lapsedAt = false, now
	return true
}

// EngineEnded reports whether the engine has certainly ended the session by now.
func (s *Session) EngineEnded(now time.Duration) bool {
	return !s.Alive && s.TTL > 0 && now > s.lapsedAt+2*s.TTL
}
