package semaphore

import "runtime"

// Handle is one key of a [Manager], found once, for a key that is used often. It
// keeps its key in memory, though idle, for as long as the handle is reachable, or
// a slot that came from it; there is nothing to close. It must not be copied. All
// methods are safe for concurrent use.
type Handle[K comparable] struct {
	_     noCopy // a copy would not keep the key
	entry *entry[K]
}

// Handle finds a key for later use. It fails with [ErrInvalid] for a key that is
// not equal to itself.
func (m *Manager[K]) Handle(key K) (*Handle[K], error) {
	if !equal(key, key) {
		return nil, errNoKey
	}
	hash, home := m.find(key)
	h := &Handle[K]{entry: home.pin(hash, key)}
	runtime.AddCleanup(h, home.unpin, h.entry)
	return h, nil
}

// TryAcquire is [Manager.TryAcquire] for the key of the handle.
func (h *Handle[K]) TryAcquire(limit int) (*Slot, error) {
	return h.acquire(new(Slot), 1, limit)
}

// TryAcquireN is [Manager.TryAcquireN] for the key of the handle.
func (h *Handle[K]) TryAcquireN(n, limit int) (*Slot, error) {
	return h.acquire(new(Slot), n, limit)
}

// TryAcquireFor is [Manager.TryAcquireFor] for the key of the handle.
func (h *Handle[K]) TryAcquireFor(o *Owner, n, limit int) (*Slot, error) {
	return o.own(func() (grant, error) {
		var s Slot
		_, err := h.acquire(&s, n, limit)
		return s.grant, err
	})
}

func (h *Handle[K]) acquire(s *Slot, n, limit int) (*Slot, error) {
	if n < 1 || limit < 0 {
		return nil, invalid(n, limit)
	}
	ordinal, got := h.entry.take(n, limit)
	// Until here the handle kept the entry from going, from now on its slots do,
	// which keep the handle too.
	runtime.KeepAlive(h)
	if got != granted {
		return nil, refused(n, limit)
	}
	s.grant = grant{h, n, ordinal}
	return s, nil
}

// free gives n slots back. The handle is still there, so the entry stays, and its
// shard need not be asked whether it is crowded.
func (h *Handle[K]) free(n int) {
	h.entry.lower(n)
	// A handle that went before would find the entry in use, and leave it behind.
	runtime.KeepAlive(h)
}

// Held returns how many slots of the key are in use.
func (h *Handle[K]) Held() int {
	n := int(h.entry.count.Load())
	// Until here the handle kept the entry from going, and its count from being gone.
	runtime.KeepAlive(h)
	return n
}
