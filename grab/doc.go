// Package grab holds locks for callers that identify themselves by a name and not by a process: the
// steps of a CI job, scripts, clients of a stateless server. It works on any [lockkeeper.Engine].
//
// # Use
//
// A caller grabs its targets, and repeats that from time to time. The answer is Held, or Waiting
// with the position in the queue:
//
//	reservations := grab.New(engine)
//	answer, err := reservations.Grab(ctx, grab.Request{As: "ci-17", Targets: targets})
//	if answer.State == lockkeeper.Held {
//		// use it, and grab again within answer.TTL
//	}
//	…
//	reservations.Release(ctx, name)
//
// A reservation is the claim of a name, waiting or held. Each repeat keeps the reservation alive.
// Without a repeat it ends with its TTL, so nothing has to be cleaned up after a crash.
// [Reservations.Wait] repeats until the claim is held; [Reservations.Keep] repeats in the
// background.
//
// A [Name] is a text and a set of paths: the same text at other paths is another owner. A caller
// that knows a name can act for it, so jobs need different names: use the number of the CI run.
//
// # Guarantees
//
//   - Any process may repeat any operation after a lost answer. Any number of processes may act for
//     one name at the same time; they share its one reservation.
//   - A process may be killed at any moment. At most it leaves a reservation that ends with its
//     TTL, or after a longer [Terms.For].
//   - A repeat never makes a hold end sooner than an earlier call has promised (R11).
//   - A claim may be granted while no process asks. It is held for the rest of its TTL, and the
//     next call says so.
//   - [Reservations.Renew] reports a lost hold, with the reason, as long as the engine remembers
//     it. [Reservations.Grab] reports it once and queues again.
//   - [Reservations.Confirm] makes no claim: a caller that continues one hold passes the [Token] of
//     that hold, and every other claim of the name is a loss.
//
// # Implementation
//
// Each name has a session with one claim; the id of the session is a hash of the name. The package
// stores nothing itself. The states of such a session, and what a process does after an unknown
// outcome, are in internal/solo.
package grab
