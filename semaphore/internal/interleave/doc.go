// Package interleave runs small concurrent programs under every schedule.
//
// The code under test is not changed. A test rewrites its imports with an overlay (go test
// -overlay), so that this package stands in for sync, sync/atomic, runtime, context and
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
// of A, with which a call of A begins. A story has one line per operation, with the line of code
// that does it; a call appears where it begins for the judge.
//
// # Planted bugs
//
// An explorer that overlooks bugs looks like one that finds none. So planted_test.go plants bugs
// into the code under test, one at a time, and wants a schedule that shows each: the table
// plantedBugs lists them. The explorer also checks itself in two ways. Its tests compare the
// outcomes of random programs with those of every single interleaving, without any reduction. And
// after each exploration the program runs a thousand times at random, with a choice before every
// operation: each run must end in a state that the exploration has visited.
//
// # Visited states
//
// Deterministic code does in the future what follows from its knowledge. So a state consists of the
// knowledge of each goroutine, the values of all locations (atomic values and mutexes), and the
// state of the judge. Its hash covers
//
//   - for each goroutine, its knowledge before the current call, which the program states
//     (World.Return: the place in the program and the slots held), and each operation since, with
//     its location and result;
//   - for each location its value; for a mutex also a hash of the knowledge of every goroutine that
//     unlocked it, in order. Memory that the mutex guards follows from that, and Lock observes it;
//   - the state of the judge.
//
// Addresses differ between executions, so the hash names a location or pointer by the knowledge of
// the goroutine that met it first. Things with equal names were made by the same code with the same
// knowledge, so their constant parts are equal, too.
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
//     the setup. Which locations these are is not known in advance: a pass that meets a counterexample
//     starts again.
//   - Unlock. No other goroutine could use the mutex before, so the Unlock might as well come
//     earlier.
//   - The operation after Lock, unless it is a Lock. No other goroutine could use the mutex in
//     between, so the Lock might as well come later.
//
// The judge sees a call as late as possible, when its first operation with a choice is done, and its
// return at once. That is the strictest view: it orders the most calls one after the other. A call
// without such an operation gets a choice of its own.
//
// # Waiting
//
// Gosched waits until the atomic value changes that the goroutine has just read: another look at
// the same value would change nothing. So waiting forever is a deadlock, and is found.
//
// # Limits
//
// The atomic operations of Go are sequentially consistent, and so are these. The explorer does not
// try reorderings of a compiler. It treats one effect of the garbage collector: a cleanup is a
// goroutine of its own, which may start once the program says that a value is unreachable (in a last
// call: after the last KeepAlive; World.Forget, World.LastUse, World.Keep). A program that says so
// too early shows a bug that does not exist.
package interleave
