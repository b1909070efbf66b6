// Package interleave runs small concurrent programs under every schedule.
//
// Code under test is not changed for it. A test rewrites its imports by an overlay
// (go test -overlay), so that in place of sync, sync/atomic, runtime, context and
// hash/maphash it gets this package, whose Mutex, Int64, Pointer, Gosched and so on
// have the same methods and let a scheduler decide before each operation who does
// the next one. What this package does not have does not compile, so nothing that
// is not watched can come in unnoticed.
//
// Goroutines are coroutines (iter.Pull), of which one runs at a time. The explorer
// goes through their choices depth first, and runs the program anew from its start
// for each. It cuts an execution when it comes to a state that it has seen.
//
// # Why a state may be cut
//
// Code that is deterministic does in the future what follows from what it knows. So
// a state is: what each goroutine knows, the values of all locations (atomic values
// and mutexes), and what the judge knows about the calls up to now. Its hash has
//
//   - for each goroutine a hash of its operations since its call began, each with
//     the location and the result, on top of what it knew before the call; that is
//     what the program says (World.Return): where it is, and what it holds;
//   - for each location its value, and for a mutex a hash of what everybody knew who
//     unlocked it, one after the other. Memory that is guarded by a mutex follows
//     from that, and who locks it observes it;
//   - the state of the judge.
//
// Locations and pointers have no addresses there, since these differ from one
// execution to the next. They are called by a hash of what the goroutine knew that
// came upon them first. So what is called the same was made by the same code with
// the same knowledge, and all in it that never changes is the same too.
//
// This holds if all memory that goroutines share is atomic, or guarded by a mutex,
// or set before others know it. Guarded sees to the second while programs run. The
// third is for who writes the overlay to see to. It also holds only if two states
// don't have the same hash of 64 bits; with a million states the chance of that is
// about one in thirty million.
//
// # Why not every operation has its turn
//
// Three kinds of operations happen together with the one before them. Each of them
// commutes with what others do, so to any schedule there is one that is looked at
// in which every goroutine observes the same.
//
//   - An operation on a location that only one goroutine uses, or that nobody
//     changes once the program is set up. Which ones these are is not known before:
//     a pass that finds a location not to be one begins again.
//   - Unlock. Nobody else could do anything with the mutex before, so it could as
//     well come sooner.
//   - The operation after Lock, if it is not a Lock. Nobody else could do anything
//     with the mutex between both, so the Lock could as well come later.
//
// The judge hears of a call as late as can be, when its first operation that has a
// turn is done, and of its return at once. That is the strictest: more calls come
// after the return of others than by any other schedule with the same results. A
// call without such an operation gets a turn for itself.
//
// # Waiting
//
// Gosched is taken for waiting until the atomic value changes that was read just
// before; a look that sees the same again would change nothing. So waiting for ever
// is a deadlock, and found.
//
// # What it can't see
//
// The atomic operations of Go are sequentially consistent, and so are these. What a
// compiler or the garbage collector may do is not tried, but for one thing: a
// cleanup is a goroutine of its own. It can start where the program says that
// nobody reaches the value any more, which in a last call is after the last
// KeepAlive (World.Forget, World.LastUse). What else keeps a value alive is not
// known here, so a program that says it too early shows a bug that there is not.
//
// # Doubts
//
// An explorer that overlooks something looks just as one that finds nothing. So its
// tests compare what can come of random programs with what each single interleaving
// leads to, with nothing cut and nothing put together. After each exploration the
// program runs a thousand times at random, with a turn for every operation, and may
// end in no state that was not seen: so a program is caught, too, whose goroutines
// know more than they say. And bugs are planted into the code under test, each of
// which must be found.
//
// # Running
//
// The programs are in programs_test.go. To look at some of them, at larger ones, or
// at one schedule that was wrong, or to read how a planted bug shows:
//
//	go test ./internal/interleave -run EverySchedule -v
//	go test ./internal/interleave -run EverySchedule -v -program owner
//	go test ./internal/interleave -run EverySchedule -v -long -most 5000000
//	go test ./internal/interleave -run EverySchedule -program '^two Releases$' -schedule C2,a1,b2
//	go test ./internal/interleave -run 'EveryPlantedBug.*/Close' -v
//
// A schedule names who runs and for how many operations: C2,a1 is two operations of
// C and then one of A, at which a call of A begins. A story has them line by line,
// each with the line of code that does it; a call is told where it begins for the
// judge.
package interleave
