package semaphore

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"runtime"
)

// maxIdle is the number of entries up to which a shard keeps idle ones, so that a key in regular
// use is not inserted and evicted each time. It does not depend on the number of shards: keys do
// not spread evenly, so a share of a common bound would be too small for some shards.
const maxIdle = 128

// Manager keeps one semaphore for each key. Two managers share nothing: the same key in both is two
// semaphores. All methods are safe for concurrent use, and none of them waits for a slot. Use [New]
// to make one.
type Manager[K comparable] struct {
	seed   maphash.Seed
	shift  int // the shard of a hash is shards[hash>>shift]
	shards []shard[K]
}

// New returns a manager without keys. It needs no Close.
func New[K comparable]() *Manager[K] {
	// More shards than cores, so that inserts and evictions seldom wait for each other, and at most
	// 128, which bounds the idle entries.
	n := min(1<<bits.Len(uint(8*runtime.GOMAXPROCS(0)-1)), 128)
	m := &Manager[K]{seed: maphash.MakeSeed(), shift: 64 - bits.Len(uint(n-1)), shards: make([]shard[K], n)}
	for i := range m.shards {
		m.shards[i].init(maxIdle)
	}
	return m
}

// TryAcquire takes one slot of the key if fewer than limit are held, and otherwise returns
// [ErrFull]. The manager does not remember the limit. The slot is held until it is released.
func (m *Manager[K]) TryAcquire(key K, limit int) (*Slot, error) {
	// The compiler inlines this function and its variants, so a slot that does not escape from the
	// caller is not allocated.
	return m.acquire(new(Slot), key, 1, limit)
}

// TryAcquireN takes n slots of the key if at most limit slots are held after that. Otherwise it
// takes none, and returns [ErrFull].
func (m *Manager[K]) TryAcquireN(key K, n, limit int) (*Slot, error) {
	return m.acquire(new(Slot), key, n, limit)
}

// TryAcquireFor is TryAcquireN for an owner, whose end frees the slots that are still held. It
// returns [ErrOwnerEnded] once the owner has ended or its context is done.
func (m *Manager[K]) TryAcquireFor(o *Owner, key K, n, limit int) (*Slot, error) {
	return o.acquire(func() (grant, error) {
		var s Slot
		_, err := m.acquire(&s, key, n, limit)
		return s.grant, err
	})
}

// acquire makes s a held slot and returns it.
func (m *Manager[K]) acquire(s *Slot, key K, n, limit int) (*Slot, error) {
	if n < 1 || limit < 0 {
		return nil, invalid(n, limit)
	}
	hash, shard := m.find(key)
	e, ordinal, result := shard.lookup(hash, key), 0, stale
	if e != nil {
		ordinal, result = e.take(n, limit)
	}
	if result == stale {
		if !equal(key, key) {
			return nil, errUnequalKey
		}
		if n > limit {
			return nil, errLimitTooLow // the number of held slots does not matter
		}
		e, ordinal, result = shard.takeSlow(hash, key, n, limit)
	}
	if result != granted {
		return nil, refused(n, limit)
	}
	s.grant = grant{e, n, ordinal}
	return s, nil
}

// equal returns false for a floating-point NaN and for a value that contains one.
func equal[K comparable](a, b K) bool { return a == b }

// find returns the hash and the shard of a key.
func (m *Manager[K]) find(key K) (hash uint64, s *shard[K]) {
	if len(m.shards) == 0 {
		panic("semaphore: this Manager was not made by New")
	}
	hash = maphash.Comparable(m.seed, key)
	return hash, &m.shards[hash>>m.shift]
}

// Held returns the number of held slots of the key.
func (m *Manager[K]) Held(key K) int {
	hash, shard := m.find(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if e := shard.lookup(hash, key); e != nil {
		return int(e.count.Load())
	}
	return 0
}

// All yields each key that has held slots, with their number, in no particular order. Each number
// was exact at some moment of the iteration, at different moments for different keys. The loop body
// may acquire and release.
func (m *Manager[K]) All() iter.Seq2[K, int] {
	return func(yield func(K, int) bool) {
		for i := range m.shards {
			for _, u := range m.shards[i].inUse() {
				if !yield(u.key, u.slots) {
					return
				}
			}
		}
	}
}
