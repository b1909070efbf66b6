package remote

import (
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
)

// subscriptions are the sessions attached through this engine, with the callbacks to notify of
// each. The mutex is not held during a callback.
type subscriptions struct {
	mu       sync.Mutex
	sessions attached.Sessions[struct{}]
}

// attach begins an attach. The caller must call the result with the lease, or with nil if the attach
// was not granted.
func (s *subscriptions) attach(session string, notify attached.Notify) (answered func(*lockkeeper.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.sessions.Begin(session, notify)
	return func(lease *lockkeeper.Lease) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if lease == nil {
			pending.Refused()
			return
		}
		now := time.Now()
		pending.Granted(lease.Key.Epoch, lease.TTL, now.Add(2*lease.TTL))
		s.sessions.Sweep(func(_ string, a *attached.Attachment[struct{}]) bool { return a.Until.Before(now) })
	}
}

// renewed keeps the subscription of a session for 2*TTL from now, so that it outlives the session.
func (s *subscriptions) renewed(lease *lockkeeper.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Renew(lease.Key.Session, lease.Key.Epoch, time.Now().Add(2*lease.TTL))
}

// left removes a session that its owner has left under the key.
func (s *subscriptions) left(k lockkeeper.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Remove(k.Session, k.Epoch)
}

// of returns the callbacks of a session.
func (s *subscriptions) of(session string) []attached.Notify {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions.Notifies(session)
}

// all returns the callbacks of all sessions.
func (s *subscriptions) all() []attached.Notify {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions.Everybody()
}

// clear removes all sessions.
func (s *subscriptions) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Clear()
}
