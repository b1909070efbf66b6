// Package grab keeps places in line and holds for callers that are known by a
// name instead of by a process: the steps of a CI job, scripts, clients of a
// stateless server. It is a front end over any [lockkeeper.Engine].
//
// Whoever wants something grabs it, and grabs it again from time to time: the
// answer is ok, or wait and the position in line. Each repeat keeps the place or
// the hold alive; who stops repeating loses it after its TTL, and nobody has to
// clean up after a crash. A name has one session for each set of paths, with one
// claim in it, so the same name at other paths is another owner.
//
// Every operation may be repeated after a lost answer, by any process, and any
// number of processes may act for one name at once: a session has one owner, who
// is the name, and what one of them does is true for all. Killed at any moment,
// a caller leaves at most a place or a hold that ends by itself: after the TTL
// that it asked for, or after what a longer [Terms.For] has promised.
//
//   - A repeat never makes a hold end sooner than an earlier one has promised (R11).
//   - A place may be granted while nobody looks. It is then held, for the rest of
//     its TTL, and the next call says so.
//   - What was lost, to an operator or to a thief, is told by [Places.Renew] as
//     long as the session lives; [Places.Grab] tells it once and queues anew.
//   - A caller that continues one hold passes its [Token] to [Places.Confirm], which
//     creates no claim: any other claim of the name is a loss.
//   - Whoever knows a name can act for it, so names that must not meet have to
//     differ: by the number of a CI run, say.
package grab
