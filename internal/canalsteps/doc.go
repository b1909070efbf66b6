// Package canalsteps goes through every interleaving of the steps of package
// canal's algorithm, for a few workers with short programs.
//
// It is a model: the algorithm is written down once more, as steps of which each
// does one thing that others can see, and an explorer lets every worker do its next
// step in every state that can come about, breadth first, each state once. So what
// it finds wrong it tells as a shortest schedule, line by line; and where it finds
// nothing, there is nothing, in that scope.
//
// # What must hold
//
// The explorer keeps a truth of its own, which the algorithm does not see: a slot
// is held from the step at which canal has granted it (the compare-and-swap in take,
// or the store by which place makes a new entry seen) to the addition in free. The
// rules of truth.go compare it with what the algorithm does:
//
//   - never over, and the ordinal is right: looked at in the step of the grant
//   - never under: looked at in the step that decides on full
//   - each slot is freed once; a Release that returns nil has freed it, another nothing
//   - the count is what is held, and only one entry of a key is not gone, in every state
//   - while nobody has the shard's lock, its table and size are right, and nothing in
//     the table is gone
//   - an owner that has ended, or whose context was done when it asked, is granted
//     nothing; when Close has returned, all is free that was the owner's
//   - Held and All tell the truth of the moment
//   - an owner is never locked inside a shard
//   - nobody waits for ever, and no schedule goes on for ever; so from every state all
//     can finish, and in the end all do
//   - at the end nothing is held, no count is left, and no more entries are idle than may
//
// # What a step stands for
//
// Each is named after the function of canal that it is in, and source.go lists what
// it stands for there, operation by operation. A test compares that list with the
// code: whoever adds an atomic operation or a lock to canal hears that the model
// lacks it.
//
//   - entry.go: takeLoad, takeSwap (take); freeAdd (lower, for free, and that of a handle), freeCrowded (its look at size)
//   - manager.go: heldLock, heldLoad, heldUnlock (Held)
//   - shard.go: lookTable, lookCell (look without the lock: one step for each cell);
//     enterLock and enterUnlock, pinLock and pinUnlock, unpinLock and unpinUnlock, dropLock
//     and dropUnlock (the critical sections, with what each reads under the lock);
//     insertSize, insertGrow, insertPlace (insert, resize, place); evictSwap, removeMove,
//     removeClear, evictSize, evictShrink (evict, remove: one step for each store);
//     allLock, allLoad, allUnlock (inUse)
//   - slot.go: releaseSwap, releaseStore (Release), releaseAsk (notHeld), endSwap,
//     endStore, endWait (end), noteOver (settled)
//   - owner.go: ownContext, ownLock, ownUnlock (own), unwatch (Close), endLock, endUnlock
//     (end), contextDone and contextStart (what package context does)
//   - handle.go: handleLetGo (KeepAlive), handleHeld (Held)
//
// Two things are not steps of their own: what a worker does with its own variables,
// and what it reads under a lock without which nobody can change it. Neither makes a
// difference to others, whenever it is done, so it is done with the step before. The
// loop in which the end of an owner waits for a Release changes nothing as often as
// it turns, so here the worker waits.
//
// To have much happen with little, some numbers are smaller than canal's: a table
// begins with 2 or 4 cells instead of 8 and shrinks when less than half of it is in
// use instead of an eighth; an owner's list has room for 1 slot at first instead of
// 4; makeRoom looks at 1 or 2 cells instead of 4, each 2nd time instead of each 16th; and
// 0 or 1 entries may stay idle.
//
// # What is not modelled
//
// Several shards (no call has two of them locked), the hash function (keys collide
// as the scope says), numbers too large to add, errors for invalid requests, Do
// (which is a Close after the function), panics, and variables that are not atomic,
// such as the fields of a Slot: for these there is the race detector. Atomic
// operations of Go are sequentially consistent, so there is no order of them but the
// interleavings that are explored.
//
// # Planted bugs
//
// An explorer that can't find anything proves nothing. TestPlantedBugs exchanges
// steps, one bug at a time, and each must be found, by the rule that it breaks; each
// rule has a bug. Among them are the designs that canal is there to improve on:
// buckets.go and marker.go.
//
// # How to run it
//
//	go test ./internal/canalsteps -v                                   # about 20 s
//	go test ./internal/canalsteps -v -run EveryInterleaving -larger    # 2 minutes, five workers, 4 GB
//	go test ./internal/canalsteps -v -run EveryInterleaving -workers 4 -timeout 2h
//
// With -v the first tells how many states there are, and each planted bug's schedule.
package canalsteps
