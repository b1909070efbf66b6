package semaphore

import "sync/atomic"

// gone is the count of an entry that has left its shard. It never changes again,
// so whoever found the entry before it left looks again for the key.
const gone = -1

// entry is the counter of one key. All acquires and releases of a key go through
// the one entry that is in the key's shard.
//
// It has a cache line of its own where the key is no longer than a string is, so
// that cores busy with different keys don't wait for each other.
type entry[K comparable] struct {
	// count is how many slots are in use, or gone. It becomes gone only from 0,
	// only under home.mu, and in the same critical section in which the entry
	// leaves the shard: an entry that is in the shard under home.mu is not gone.
	count atomic.Int64
	home  *shard[K]
	hash  uint64
	pins  int // handles that keep the entry while it is idle; guarded by home.mu
	key   K
	_     [16]byte
}

// answer is what came of an attempt to take slots.
type answer int

const (
	granted answer = iota
	full
	left // the entry is gone: look for the key again
)

// take takes n slots if no more than limit are in use then, and returns how many
// are. Comparing and counting are one step, so there is no moment at which
// somebody could see too many, and who is refused has written nothing.
func (e *entry[K]) take(n, limit int) (ordinal int, _ answer) {
	for {
		count := e.count.Load()
		if count == gone {
			return 0, left
		}
		if count > int64(limit)-int64(n) {
			return 0, full
		}
		if e.count.CompareAndSwap(count, count+int64(n)) {
			return int(count) + n, granted
		}
	}
}

// free gives n slots back. The last one takes the key with it, unless the shard
// is so small that the entry may stay for its next use.
func (e *entry[K]) free(n int) {
	if e.lower(n) == 0 && e.home.crowded() {
		e.home.drop(e)
	}
}

// lower counts n slots less, and returns how many are left. Fewer than none is the
// mistake of who copied a Slot: it must not make the key unusable for others, also
// where panics are recovered.
func (e *entry[K]) lower(n int) int64 {
	count := e.count.Add(-int64(n))
	if count < 0 {
		e.count.Add(int64(n))
		panic("canal: more slots were released than were held: a Slot was copied")
	}
	return count
}
