package semaphore

import "sync/atomic"

// removed is the count of an entry that has left its shard. It is final: a caller that found the
// entry before has to look its key up again.
const removed = -1

// entry is the counter of one key. All acquires and releases of the key use the same entry, which
// is in the key's shard.
//
// With a key no longer than a string header, an entry fills one cache line, so cores that use
// different keys do not wait for each other.
type entry[K comparable] struct {
	// count is the number of held slots, or removed. It becomes removed only from 0, only under
	// shard.mu, and in the critical section that takes the entry out of the shard.
	//
	// Invariant: under shard.mu, an entry in the shard has count >= 0.
	count atomic.Int64
	shard *shard[K]
	hash  uint64
	pins  int // handles that keep the entry while it is idle; guarded by shard.mu
	key   K
	_     [16]byte
}

// outcome is the result of an attempt to take slots.
type outcome int

const (
	granted outcome = iota
	full
	stale // the entry was removed: look the key up again
)

// take takes n slots if count+n <= limit, and returns the new count. It compares and adds in one
// compare-and-swap, so the count never exceeds the limit of a granted caller, and a refused caller
// writes nothing.
func (e *entry[K]) take(n, limit int) (ordinal int, _ outcome) {
	for {
		count := e.count.Load()
		if count == removed {
			return 0, stale
		}
		if count > int64(limit)-int64(n) {
			return 0, full
		}
		if e.count.CompareAndSwap(count, count+int64(n)) {
			return int(count) + n, granted
		}
	}
}

// free gives n slots back. With the last slot the entry leaves its shard, unless the shard has few
// enough entries to keep it for its next use.
func (e *entry[K]) free(n int) {
	if e.lower(n) == 0 && e.shard.crowded() {
		e.shard.drop(e)
	}
}

// lower subtracts n from the count and returns the new count. A count below zero means that the
// program copied a Slot and released it twice. lower restores the count before it panics, so the
// key stays usable where the program recovers.
func (e *entry[K]) lower(n int) int64 {
	count := e.count.Add(-int64(n))
	if count < 0 {
		e.count.Add(int64(n))
		panic("semaphore: more slots were released than were held: the program copied a Slot")
	}
	return count
}
