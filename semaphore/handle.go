package semaphore

import "runtime"

// Handle is a key of a [Manager] that was looked up once, for a key in frequent use. It keeps the
// key in memory while the handle, or a slot acquired with it, is reachable; it needs no Close. It
// must not be copied. All methods are safe for concurrent use.
type Handle[K comparable] struct {
	_     noCopy // a copy would not pin the entry
	entry *entry[K]
}

// Handle looks up a key for later use. It returns [ErrInvalid] for a key that is not equal to itself.
func (m *Manager[K]) Handle(key K) (*Handle[K], error) {
	if !equal(key, key) {
		return nil, errUnequalKey
	}
	hash, shard := m.find(key)
	h := &Handle[K]{entry: shard.pin(hash, key)}
	runtime.AddCleanup(h, shard.unpin, h.entry)
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
	return o.acquire(func() (grant, error) {
		var s Slot
		_, err := h.acquire(&s, n, limit)
		return s.grant, err
	})
}

func (h *Handle[K]) acquire(s *Slot, n, limit int) (*Slot, error) {
	if n < 1 || limit < 0 {
		return nil, invalid(n, limit)
	}
	ordinal, result := h.entry.take(n, limit)
	// The handle pins the entry up to here. From here on the slot does, because it refers to the
	// handle.
	runtime.KeepAlive(h)
	if result != granted {
		return nil, refused(n, limit)
	}
	s.grant = grant{h, n, ordinal}
	return s, nil
}

// free gives n slots back. The handle pins the entry, so the entry stays.
func (h *Handle[K]) free(n int) {
	h.entry.lower(n)
	// If the handle were collected before lower, unpin would see a held entry and keep it forever.
	runtime.KeepAlive(h)
}

// Held returns the number of held slots of the key.
func (h *Handle[K]) Held() int {
	n := int(h.entry.count.Load())
	// The handle pins the entry up to here, so the count was not removed.
	runtime.KeepAlive(h)
	return n
}
