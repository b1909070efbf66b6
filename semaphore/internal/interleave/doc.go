// Package interleave runs small concurrent programs under every schedule.
//
// The sources of the code under test stay as they are. A test rewrites their imports with an
// overlay (go test -overlay), so that this package replaces sync, sync/atomic, runtime, context and
// hash/maphash. Its Mutex, Int64, Pointer, Gosched and so on have the same methods, and before each
// operation a scheduler decides which goroutine runs next. Code that uses anything else of these
// packages does not compile, so the scheduler sees every operation.
//
// Goroutines are coroutines (iter.Pull): one runs at a time. The explorer searches their choices
// depth first and runs the program again from its start for each. It ends an execution at a state
// that it has visited.
//
// # Running
//
// The programs are in programs_test.go. Programs by name, larger programs, one schedule, and a
// planted bug:
//
//	go test ./semaphore/internal/interleave -run EverySchedule -v
//	go test ./semaphore/internal/interleave -run EverySchedule -v -program owner
//	go test ./semaphore/internal/interleave -run EverySchedule -v -long
//	go test ./semaphore/internal/interleave -run EverySchedule -program '^a key .*returns$' -schedule C2,a1
//	go test ./semaphore/internal/interleave -run 'EveryPlantedBug.*/Close' -v -long
//
// A schedule names goroutines and numbers of operations: C2,a1 is two operations of C and then one
// of A, with which a call of A begins. A story has one line per operation, with its line of code. A
// story shows a call before the operation with which the judge records it.
//
// # Planted bugs
//
// An explorer that overlooks bugs reports the same as one that finds none. So planted_test.go
// plants bugs into the code under test, one at a time, and fails unless the explorer finds a
// schedule that shows each: the table plantedBugs lists them. The explorer also checks itself in
// two ways. Its tests compare the outcomes of random programs with those of every single
// interleaving, without any reduction. And after each exploration it runs the program a thousand
// times at random, with a choice before every operation: each run must end in a state that the
// exploration has visited.
//
// # Visited states
//
// The knowledge of a goroutine is everything that it has observed. Code under test is
// deterministic, so the knowledge of a goroutine and the values that it will observe decide what it
// does next. So a state consists of the knowledge of each goroutine, the values of all locations
// (atomic values and mutexes), and the state of the judge. Its hash covers
//
//   - for each goroutine, its knowledge before the current call, which the program states
//     (World.Return: the place in the program and the slots held), and each operation since, with
//     its location and result;
//   - for each location its value; for a mutex also a hash of the knowledge of every goroutine that
//     unlocked it, in order. That decides the memory that the mutex guards, and Lock observes it;
//   - the state of the judge.
//
// Addresses differ between executions, so the hash names a location or pointer by the knowledge of
// the goroutine that used it first. Two values with equal names were made by the same code with the
// same knowledge, so their constant parts are equal, too.
//
// This holds if all shared memory is atomic, or guarded by a mutex, or set before it is shared.
// Guarded checks the second while programs run; the overlay checks the third. It also holds only
// without collisions of 64-bit hashes: with a million states the probability of one is about one in
// thirty million.
//
// # Reductions
//
// Three kinds of operations happen together with the operation before them. Each commutes with
// all operations of other goroutines, so for every schedule the explorer visits one in which every
// goroutine observes the same.
//
//   - An operation on a location that only one goroutine uses, or that no goroutine changes after
//     the setup. The explorer assumes at first that a location is of this kind; a pass that finds
//     the opposite starts again.
//   - Unlock. Until then no other goroutine can use the mutex, so an Unlock at once after the
//     operation before it has the same effect.
//   - The operation after Lock, unless it is a Lock. Between them no other goroutine can use the
//     mutex, so a Lock directly before that operation has the same effect.
//
// The judge records a call as late as possible, with its first operation that has a choice, and the
// return at once. That is the strictest view, because the fewest calls then overlap. A call without
// such an operation gets a choice of its own.
//
// # Waiting
//
// Gosched waits until another goroutine changes the atomic value that this one has just read: a
// second read of the same value would change nothing. So the explorer reports an endless wait as a
// deadlock.
//
// # Limits
//
// The atomic operations of Go are sequentially consistent, and so are these. The explorer does not
// try reorderings of a compiler. It treats one effect of the garbage collector: a cleanup is a
// goroutine of its own, which may start once the program has said that a value is unreachable, with
// World.Forget or World.LastUse (see World.Keep). A program that says so too early shows a bug that
// does not exist.
package interleave
