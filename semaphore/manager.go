package semaphore

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"runtime"
)

// idleKeys is how many keys without a slot in use a shard remembers, so that a key
// that is used over and over does not come and go each time. It is the same for
// each shard, however many there are: what is divided among many leaves too little
// for some, as keys don't fall into shards evenly.
const idleKeys = 128

// Manager keeps a semaphore for each key; [New] makes one. Managers have nothing in
// common: the same key in two of them is two semaphores. All methods are safe for
// concurrent use, and none of them ever waits for a slot.
type Manager[K comparable] struct {
	seed   maphash.Seed
	shift  int // of a hash, to the number of its shard
	shards []shard[K]
}

// New makes a manager that has no keys. It needs no closing.
func New[K comparable]() *Manager[K] {
	// More shards than cores, so that keys which come and go seldom meet; but not so
	// many that much is kept idle.
	n := min(1<<bits.Len(uint(8*runtime.GOMAXPROCS(0)-1)), 128)
	m := &Manager[K]{seed: maphash.MakeSeed(), shift: 64 - bits.Len(uint(n-1)), shards: make([]shard[K], n)}
	for i := range m.shards {
		m.shards[i].init(idleKeys)
	}
	return m
}

// TryAcquire takes a slot of the key if fewer than limit are in use, and returns
// [ErrFull] otherwise. The limit is the caller's own view at this moment; it is
// not remembered. The slot is held until it is released.
func (m *Manager[K]) TryAcquire(key K, limit int) (*Slot, error) {
	// This and its like are short enough to be inlined, so a slot that does not
	// leave its caller's function is on its stack.
	return m.acquire(new(Slot), key, 1, limit)
}

// TryAcquireN takes n slots of the key, all or none: none, with [ErrFull], if more
// than limit would be in use then.
func (m *Manager[K]) TryAcquireN(key K, n, limit int) (*Slot, error) {
	return m.acquire(new(Slot), key, n, limit)
}

// TryAcquireFor is as TryAcquireN, for an owner, whose end frees the slots if they
// are not released before. It fails with [ErrOwnerEnded] once the owner has ended,
// or its context is done.
func (m *Manager[K]) TryAcquireFor(o *Owner, key K, n, limit int) (*Slot, error) {
	return o.own(func() (grant, error) {
		var s Slot
		_, err := m.acquire(&s, key, n, limit)
		return s.grant, err
	})
}

// acquire makes s a slot that is held, and returns it.
func (m *Manager[K]) acquire(s *Slot, key K, n, limit int) (*Slot, error) {
	if n < 1 || limit < 0 {
		return nil, invalid(n, limit)
	}
	hash, home := m.find(key)
	e, ordinal, got := home.look(hash, key), 0, left
	if e != nil {
		ordinal, got = e.take(n, limit)
	}
	if got == left {
		if !equal(key, key) {
			return nil, errNoKey
		}
		if n > limit {
			return nil, errNever // also if the key is there: nothing needs to be looked at
		}
		e, ordinal, got = home.enter(hash, key, n, limit)
	}
	if got != granted {
		return nil, refused(n, limit)
	}
	s.grant = grant{e, n, ordinal}
	return s, nil
}

// equal is false for a floating-point NaN, and whatever contains one.
func equal[K comparable](a, b K) bool { return a == b }

func (m *Manager[K]) find(key K) (hash uint64, s *shard[K]) {
	if len(m.shards) == 0 {
		panic("canal: a Manager that New did not make")
	}
	hash = maphash.Comparable(m.seed, key)
	return hash, &m.shards[hash>>m.shift]
}

// Held returns how many slots of the key are in use.
func (m *Manager[K]) Held(key K) int {
	hash, home := m.find(key)
	home.mu.Lock()
	defer home.mu.Unlock()
	if e := home.look(hash, key); e != nil {
		return int(e.count.Load())
	}
	return 0
}

// All yields each key that has slots in use, and how many, in no order. Each
// number was right at some moment of the walk, not all at the same one. Keys may
// be acquired and released meanwhile, also by who walks.
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
