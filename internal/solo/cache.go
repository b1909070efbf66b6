package solo

import (
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// maxCached bounds each of the two halves of a Cache.
const maxCached = 8192

// A Cache has the keys of sessions that this process has used lately. A missing entry costs two
// more exchanges with the engine and has no other effect. A Cache is safe for concurrent use. A nil
// Cache is empty and stays empty.
type Cache struct {
	mu         sync.Mutex // guards all below
	young, old map[cacheKey]*entry
}

type cacheKey struct{ owner, session string }

// An entry is the latest state of one session that this process has seen.
type entry struct {
	key    lockkeeper.Key
	number uint64          // of the latest lease
	change uint64          // of the claim, in that lease or in a later answer
	acked  uint64          // the latest lease under this epoch that the client has acknowledged (R12)
	want   lockkeeper.Want // the claim as it was made or last amended; the ID is 0 if this process did neither
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{young: make(map[cacheKey]*entry)} }

func (s *Session) cacheKey() cacheKey { return cacheKey{s.Owner, s.ID} }

// cached returns the cache entry of the session. Its epoch is 0 if no key is known.
func (s *Session) cached() entry {
	if s.Cache == nil {
		return entry{}
	}
	s.Cache.mu.Lock()
	defer s.Cache.mu.Unlock()
	if e := s.Cache.find(s.cacheKey()); e != nil {
		return *e
	}
	return entry{}
}

// find is called with c.mu held. It returns nil if there is no entry.
func (c *Cache) find(k cacheKey) *entry {
	if e := c.young[k]; e != nil {
		return e
	}
	return c.old[k]
}

// update changes the entry of a session.
func (c *Cache) update(s *Session, change func(*entry)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := s.cacheKey()
	e := c.young[k]
	if e == nil {
		if e = c.old[k]; e == nil {
			e = new(entry)
		}
		if len(c.young) == maxCached {
			c.young, c.old = make(map[cacheKey]*entry), c.young // forgets the older half
		}
		c.young[k] = e
	}
	change(e)
}

// forget drops a session that was left under an epoch.
func (c *Cache) forget(s *Session, epoch uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := s.cacheKey(); c.find(k) != nil && c.find(k).key.Epoch <= epoch {
		delete(c.young, k)
		delete(c.old, k)
	}
}

// lease adds a lease and the claim's change in it, unless a later lease is known. An acknowledgement
// ends with its epoch: the session may have ended since, and the leases of the next one with its id
// are counted from 1 again. The engine remembers the acknowledgements of a session that goes on.
func (e *entry) lease(l *lockkeeper.Lease, change uint64) {
	if e.key.Epoch > l.Key.Epoch || e.key.Epoch == l.Key.Epoch && e.number > l.Number {
		return
	}
	if e.key.Epoch != l.Key.Epoch {
		e.acked = 0
	}
	e.key, e.number = lockkeeper.Key{Session: l.Key.Session, Epoch: l.Key.Epoch}, l.Number
	e.change = max(e.change, change)
}

// Acknowledge records that the client has seen the claim's status with this change number. That
// acknowledges the latest lease, unless the lease contained a later change of the claim.
func (s *Session) Acknowledge(change uint64) {
	if s.cached().key.Epoch == 0 {
		return
	}
	s.Cache.update(s, func(e *entry) {
		if change != 0 && change >= e.change {
			e.acked = e.number
		}
	})
}

// Wanted returns the claim as this process has made or last amended it; the ID is 0 if this process
// does not know it.
func (s *Session) Wanted() lockkeeper.Want { return s.cached().want }

// CachedKey returns the key that this process has; its epoch is 0 if there is none.
func (s *Session) CachedKey() lockkeeper.Key { return s.cached().key }
