package semaphore

import (
	"sync"
	"sync/atomic"
)

// minCells is the least number of cells of a shard. All numbers of cells are powers of two.
const minCells = 8

// shard keeps the entries of some keys in a hash table with linear probing. Changes need mu;
// lookups do not. A lookup without mu may miss an entry that another goroutine is moving; the
// caller then repeats it under mu. An entry that it finds may be removed, which its count says.
//
// insert adds entries: for takeSlow with their first slots, and for pin. evict removes idle ones:
// for drop when the last slot is freed, for unpin when the last handle is collected, and for
// evictIdle when other keys are inserted.
type shard[K comparable] struct {
	mu      sync.Mutex
	cells   atomic.Pointer[[]cell[K]] // changed under mu; at most half of the cells are in use
	size    atomic.Int64              // number of entries in cells; changed under mu
	calls   uint64                    // calls of evictIdle; guarded by mu
	maxIdle int64                     // with more entries than this, an entry that becomes idle leaves
	_       [24]byte                  // fills the cache line
}

type cell[K comparable] = atomic.Pointer[entry[K]]

func (s *shard[K]) init(maxIdle int) {
	s.maxIdle = int64(maxIdle)
	cells := make([]cell[K], minCells)
	s.cells.Store(&cells)
}

// lookup returns the entry of a key, or nil. Without mu it may miss an entry.
func (s *shard[K]) lookup(hash uint64, key K) *entry[K] {
	cells := *s.cells.Load()
	i := hash
	// The table always has empty cells, but a lookup without mu reads the cells at different
	// moments and may see none of them: the bound ends it.
	for range cells {
		e := cells[i&uint64(len(cells)-1)].Load()
		if e == nil {
			break
		}
		if e.hash == hash && e.key == key {
			return e
		}
		i++
	}
	return nil
}

// takeSlow takes n slots under mu, for a key whose entry lookup missed or found removed. A key
// without an entry gets one, with these slots taken: the caller has checked n <= limit.
func (s *shard[K]) takeSlow(hash uint64, key K, n, limit int) (e *entry[K], ordinal int, _ outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.lookup(hash, key); e != nil {
		ordinal, result := e.take(n, limit)
		return e, ordinal, result
	}
	e = s.insert(hash, key, int64(n))
	return e, n, granted
}

// pin returns the entry of a key, which it inserts if necessary, and keeps it until unpin.
func (s *shard[K]) pin(hash uint64, key K) *entry[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.lookup(hash, key)
	if e == nil {
		e = s.insert(hash, key, 0)
	}
	e.pins++
	return e
}

func (s *shard[K]) unpin(e *entry[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.pins--
	if s.crowded() {
		s.evict(e)
	}
}

// usage is a key and its number of held slots.
type usage[K comparable] struct {
	key   K
	slots int
}

func (s *shard[K]) inUse() []usage[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []usage[K]
	for i := range *s.cells.Load() {
		e := (*s.cells.Load())[i].Load()
		if e == nil {
			continue
		}
		// The count is read once: a second read might return 0.
		if n := e.count.Load(); n > 0 {
			all = append(all, usage[K]{e.key, int(n)})
		}
	}
	return all
}

// crowded reports whether the shard has more entries than it keeps while they are idle.
func (s *shard[K]) crowded() bool { return s.size.Load() > s.maxIdle }

// drop removes an entry whose last slot was freed, unless it is in use again.
func (s *shard[K]) drop(e *entry[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(e)
}

// evict removes an entry if it is idle, not pinned, and still in the shard. A caller that finds it
// in an older table sees its count removed. The caller has locked mu.
func (s *shard[K]) evict(e *entry[K]) {
	if e.pins > 0 || !e.count.CompareAndSwap(0, removed) {
		return
	}
	cells := *s.cells.Load()
	remove(cells, e)
	size := s.size.Add(-1)
	if len(cells) > minCells && size < int64(len(cells)/8) {
		s.resize(len(cells) / 2)
	}
}

// insert adds an entry for a key that has none. The caller has locked mu.
func (s *shard[K]) insert(hash uint64, key K, count int64) *entry[K] {
	if s.size.Load() >= s.maxIdle {
		s.evictIdle()
	}
	e := &entry[K]{shard: s, hash: hash, key: key}
	e.count.Store(count)
	if size := s.size.Add(1); size > int64(len(*s.cells.Load())/2) {
		s.resize(2 * len(*s.cells.Load()))
	}
	put(*s.cells.Load(), e)
	return e
}

// evictIdle removes the idle entries among four cells, different ones each time, so that idle keys
// which are no longer used make room for keys in use. Only every 16th call does so: usually it is
// cheaper to evict the new key with its last slot, and idle keys in frequent use survive a series
// of keys that are used once.
func (s *shard[K]) evictIdle() {
	s.calls++
	if s.calls%16 != 0 {
		return
	}
	for i := range uint64(4) {
		cells := *s.cells.Load()
		if e := cells[(s.calls/4+i)&uint64(len(cells)-1)].Load(); e != nil {
			s.evict(e)
		}
	}
}

// resize copies all entries into a new table. A lookup that still reads the old table finds present
// or removed entries, or misses new ones.
func (s *shard[K]) resize(length int) {
	old := *s.cells.Load()
	cells := make([]cell[K], length)
	for i := range old {
		if e := old[i].Load(); e != nil {
			put(cells, e)
		}
	}
	s.cells.Store(&cells)
}

// put stores an entry in the first empty cell at or after the one that its hash selects.
func put[K comparable](cells []cell[K], e *entry[K]) {
	mask := uint64(len(cells) - 1)
	i := e.hash & mask
	for cells[i].Load() != nil {
		i = (i + 1) & mask
	}
	cells[i].Store(e)
}

// remove takes an entry out and moves later entries up, so that no search stops at an empty cell
// before it reaches its entry (Knuth, The Art of Computer Programming, volume 3, section 6.4,
// algorithm R).
func remove[K comparable](cells []cell[K], e *entry[K]) {
	mask := uint64(len(cells) - 1)
	hole := e.hash & mask
	for cells[hole].Load() != e {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; ; i = (i + 1) & mask {
		next := cells[i].Load()
		if next == nil {
			break
		}
		if (i-next.hash)&mask >= (i-hole)&mask {
			cells[hole].Store(next)
			hole = i
		}
	}
	cells[hole].Store(nil)
}
