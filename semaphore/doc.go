// Package semaphore keeps counting semaphores within one process: one for each key, thousands of
// keys, and a limit that may change at any moment, also while slots are held. An acquire never
// waits. Acquire and release together cost little more than finding a mutex by key and locking it.
//
// # Use
//
// An application runs on several machines, each of which handles three requests at once. Every
// caller knows the present number of machines, and so the present number of slots:
//
//	slots := semaphore.New[string]()
//
//	slot, err := slots.TryAcquire(application, 3*machines)
//	if errors.Is(err, semaphore.ErrFull) {
//		return tooBusy
//	}
//	if err != nil {
//		return err
//	}
//	defer slot.Release()
//
// # Limits belong to callers
//
// There is no Resize, because a semaphore stores no limit. Each acquire passes the limit that its
// caller knows. With held slots it takes n more if
//
//	held + n <= limit
//
// Callers may know different limits: with four slots held, a caller with limit 6 gets the fifth,
// and a caller with limit 3 gets [ErrFull]. A higher limit takes effect with the first caller that
// knows it. A lower limit takes no slot away: its callers are refused until enough slots are
// released. A release needs no limit.
//
// For every key and at every moment:
//
//   - no acquire succeeds beyond its own limit;
//   - no acquire fails within its limit. A slot counts as held until it is freed, which is before
//     the Release or Close that frees it returns;
//   - a refused acquire changes nothing, so no sequence of refusals, releases and changing limits
//     makes a slot unusable.
//
// # Holders
//
// A [Slot] belongs to the code that has it. Release works once; then it returns [ErrNotHeld] and
// changes nothing. No other code can free the slot.
//
// Code that may fail before it releases acquires for an [Owner], which ends with its context, with
// Close, or with a function (Do):
//
//	owner := semaphore.NewOwner(r.Context())
//	defer owner.Close()
//	slot, err := slots.TryAcquireFor(owner, application, 1, 3*machines)
//
// The end of an owner frees each slot that it still holds exactly once, even if a Release of the
// slot runs at that moment. Close frees them before it returns; the end of a context frees them
// shortly after.
//
// # Limits of this package
//
// No call waits, so there is no queue and no order among callers that try again: a caller that
// asks for many slots can starve beside callers that ask for one. There is no bound on the time for
// which a slot is held, no hierarchy, and no slot survives the process. The Client of package
// lockkeeper has all of these. A slot that no caller releases, and no end of an owner frees, stays
// held as long as the process runs.
//
// # Cost
//
// An acquire finds its key in a hash table without a lock and takes the slot with one
// compare-and-swap. A refused acquire writes nothing, so refused callers do not slow each other
// down. A release is one compare-and-swap in the slot's own memory and one addition. A key has no
// goroutine, timer or channel. A [Slot] that does not escape its function is not allocated.
//
// A key exists from its first slot to its last one. Some idle keys are kept for their next use: at
// most 1,024 for each core, rounded up to a power of two, and at most 16,384 in all. A key takes at
// most 130 bytes beside its own text.
//
// Cores that use the same key pass the cache line of its counter from one to the other, which no
// exact count can avoid. They do not slow down cores that use other keys.
//
// # States of an entry
//
// This section and the next are for maintainers. An entry is the counter of one key. A hash table
// (shard) finds it by its key:
//
//	          takeSlow                 free: count becomes 0              evict
//	absent ─────────────> in use   ───────────────────────────> idle    ───────> removed
//	   │                 count >= 1 <─────────────────────────  count 0          count -1
//	   │                                      take                ^
//	   └────────────────────────────────────── pin ───────────────┘
//
// The invariants are:
//
//   - count = slots held (>= 0), or removed (-1), which never changes again;
//   - count becomes removed only under the shard's mutex and leaves the table in the same critical
//     section. So under the mutex the table has no removed entry and at most one entry per key;
//   - take compares and adds in one step: count <= limit-n, then count+n. A caller that found an
//     entry without the mutex and sees removed looks its key up again, under the mutex;
//   - an entry with pins (handles) is not evicted. Handle.free and Handle.Held rely on that;
//   - without the mutex lookup may miss an entry that is being moved, but it never returns an entry
//     of another key. takeSlow looks again under the mutex before it inserts.
//
// Locks are taken in the order Owner.mu, shard.mu. No foreign code runs under either.
//
// # States of a slot
//
//	held ──Release──> freeing ──> released
//	  └──end of owner──> ending ──> ended
//
// A Release and the end of the owner both try the compare-and-swap from held, and only the winner
// frees the slot. The end of an owner waits until a slot in state freeing is released, so the owner
// holds no slot when Close returns.
//
// Package semaphore/internal/interleave runs this code under every schedule of small programs.
package semaphore
