package semaphore

import (
	"sync"
	"sync/atomic"
)

// smallest is the least number of cells of a shard. A power of two, as all are.
const smallest = 8

// shard keeps the entries of some of the keys in a hash table with linear
// probing. It is changed under mu, and looked at without: who looks may miss an
// entry that is just being moved, and then looks again under mu. What it finds is
// right by the entry's own count.
//
// An entry comes by insert (from enter, with its first slots, and from pin) and
// goes by evict: from drop when its last slot is freed, from unpin when its last
// handle is gone, and from makeRoom when others come.
type shard[K comparable] struct {
	mu    sync.Mutex
	cells atomic.Pointer[[]cell[K]] // changed under mu; at most half of them are in use
	size  atomic.Int64              // entries in cells; changed under mu
	hand  uint64                    // how often makeRoom was called; guarded by mu
	keep  int64                     // with more entries than this, none stays when it becomes idle
	_     [24]byte                  // to the end of the cache line
}

type cell[K comparable] = atomic.Pointer[entry[K]]

func (s *shard[K]) init(keep int) {
	s.keep = int64(keep)
	cells := make([]cell[K], smallest)
	s.cells.Store(&cells)
}

// look finds the entry of a key. It may miss one that is there.
func (s *shard[K]) look(hash uint64, key K) *entry[K] {
	cells := *s.cells.Load()
	i := hash
	// There are empty cells at any moment, but who looks without mu sees one cell
	// at one moment and the next at another: hence the bound.
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

// enter takes n slots of a key that look did not find, or found gone. A key that
// is not there comes into the shard with these slots taken; n is not above the
// limit, so they may be.
func (s *shard[K]) enter(hash uint64, key K, n, limit int) (e *entry[K], ordinal int, _ answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.look(hash, key); e != nil {
		ordinal, answer := e.take(n, limit)
		return e, ordinal, answer
	}
	e = s.insert(hash, key, int64(n))
	return e, n, granted
}

// pin keeps the entry of a key, which comes if it is not there, until unpin.
func (s *shard[K]) pin(hash uint64, key K) *entry[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(hash, key)
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

// usage is a key and how many of its slots are in use.
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
		// One look at the count: at the next one it may be 0, and the key not in use.
		if n := e.count.Load(); n > 0 {
			all = append(all, usage[K]{e.key, int(n)})
		}
	}
	return all
}

// crowded says that there are more entries than may stay for their next use.
func (s *shard[K]) crowded() bool { return s.size.Load() > s.keep }

// drop removes an entry that was idle a moment ago, unless it is used again.
func (s *shard[K]) drop(e *entry[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(e)
}

// evict removes an entry if it is idle, not pinned, and still there. Whoever
// finds it in a table of before sees that it is gone. mu is held.
func (s *shard[K]) evict(e *entry[K]) {
	if e.pins > 0 || !e.count.CompareAndSwap(0, gone) {
		return
	}
	cells := *s.cells.Load()
	remove(cells, e)
	size := s.size.Add(-1)
	if len(cells) > smallest && size < int64(len(cells)/8) {
		s.resize(len(cells) / 2)
	}
}

// insert adds an entry for a key that has none. mu is held.
func (s *shard[K]) insert(hash uint64, key K, count int64) *entry[K] {
	if s.size.Load() >= s.keep {
		s.makeRoom()
	}
	e := &entry[K]{home: s, hash: hash, key: key}
	e.count.Store(count)
	if size := s.size.Add(1); size > int64(len(*s.cells.Load())/2) {
		s.resize(2 * len(*s.cells.Load()))
	}
	place(*s.cells.Load(), e)
	return e
}

// makeRoom looks at a few cells, other ones each time, and removes what is idle
// there: else keys of long ago could stay in the place of those in use now. It does
// so only at each 16th call: mostly it is cheaper if the new key leaves with its
// slot, and keys that are used often are not driven out by those that are used once.
func (s *shard[K]) makeRoom() {
	s.hand++
	if s.hand%16 != 0 {
		return
	}
	for i := range uint64(4) {
		cells := *s.cells.Load()
		if e := cells[(s.hand/4+i)&uint64(len(cells)-1)].Load(); e != nil {
			s.evict(e)
		}
	}
}

// resize moves all entries into a new table. Whoever still looks into the old
// one finds entries that are right, or gone, or misses new ones.
func (s *shard[K]) resize(length int) {
	old := *s.cells.Load()
	cells := make([]cell[K], length)
	for i := range old {
		if e := old[i].Load(); e != nil {
			place(cells, e)
		}
	}
	s.cells.Store(&cells)
}

// place puts an entry into the first empty cell from where its hash points.
func place[K comparable](cells []cell[K], e *entry[K]) {
	mask := uint64(len(cells) - 1)
	i := e.hash & mask
	for cells[i].Load() != nil {
		i = (i + 1) & mask
	}
	cells[i].Store(e)
}

// remove takes an entry out and moves those behind it up, so that no search ends
// at the empty cell before it has found what it looks for (Knuth, The Art of
// Computer Programming, volume 3, section 6.4, algorithm R).
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
