// Package table implements the rules of Lockkeeper. A [Table] is the ordered list of claims;
// [Table.Step] applies one [Command] to it and returns the reply. The package has no clock,
// goroutine, I/O or randomness: time comes with the command, events are values, and the same
// commands always give the same table. Engines make a table durable or distribute it.
// [RulesVersion] is the version of these rules.
//
// A Table is not safe for concurrent use.
//
// The stories in testdata show the rules at work; they run as tests. Package internal/model
// implements the rules a second time.
//
// # Paths, modes, order and grants
//
// R1 paths. See [lockkeeper.ParsePath]. Paths are compared byte by byte.
//
// R2 modes. Exclusive and shared cover the whole subtree of their path. Permits take n units, at
// least 1, of one path under a limit.
//
// R3 intents. A claim with a target holds, or waits with, an intent on every ancestor of the
// target's path: IS for a shared target, IX for an exclusive or permits target. The file mode.go
// has the matrix of these kinds. Permits behave as IX, except that permits of the same path meet by
// R7. A claim is never incompatible with itself: an ancestor and its descendant in one claim merge.
// A claim that is inside another one (R15) meets it as it meets any claim.
//
// R4 order. The queue is ordered by class, then priority (highest first), then ticket (lowest
// first), then session and id of the claim. The classes are: conversions, hard claims, soft claims.
// A claim draws its ticket when it arrives, and a new one when it asks for a conversion. A higher
// priority keeps the ticket.
//
// R5 grants. A waiting claim is granted as soon as it is compatible with every claim ahead of it.
// Ahead are all held claims except itself, and all waiting claims before it in the queue. Three
// sorts of waiting claims are not ahead: soft claims (R9), claims that a freeze forbids (R18), and,
// between permits, claims with a smaller limit (R7). The table considers waiting claims in the
// order of the queue, again and again until nothing changes.
//
// R6 many targets. A claim with several targets is granted whole or not at all.
//
// R7 permits. On one path, a permits target of n units with limit L is compatible with the other
// permits ahead if
//
//	units held + units waiting ahead with a limit of at least L + n <= L
//
// The grant states the units then in use, its own included. A target of one unit gets the lowest
// slot from 1 that no held target has. It avoids the slots of unacknowledged holders (R12) if a
// slot up to its limit remains.
//
// R8 bounded waits. A claim with wait 0 that is not granted in its own step ends as timed out in
// that step, and asks nobody. A bound ends the wait at arrival plus the bound; a conversion has its
// own bound, from when it was asked for. A wait is hopeless if its bound ends no later than
//
//   - a freeze that forbids it, or
//   - a set of announced holds that is incompatible with it. An announced hold is another held
//     claim with Expected, whose announced end is no sooner than the bound. If its enforced end
//     (longest hold plus grace, revocation, lapse) is sooner, that one counts. A claim that steals
//     ignores announced holds of lower priority.
//
// A hopeless wait ends as timed out at once, whenever it becomes hopeless.
//
// R9 writer policy, for exclusive targets only. A soft claim is ahead of no claim while it waits; a
// conversion is never soft. A claim with a quiet period waits until that has passed since the later
// of its arrival and the last end of a hold that was incompatible with it (R5, pairwise; a refused
// or cancelled claim was no hold, and a downgrade is no end).
//
// # Steal
//
// R10 steal. A thief is a waiting claim T that may steal, that no freeze forbids, and whose session
// has resumed. T asks exactly the holders in its ask set. The ask set is empty if a waiting claim
// ahead is incompatible with T, or if an incompatible holder has a priority not below T's or is one
// that T is inside of (R15). That a holder is inside the same claim as T does not protect it. A set
// that is not empty has:
//
//   - every holder that is incompatible with T by its kinds (all but permits against permits on one
//     path);
//   - then, for each permits target of T in the order of paths, holders with permits of that path,
//     until enough units would be free. The units of holders already in the set do not count as
//     held. The missing units are taken from holders of lower priority that T is not inside of: the
//     set with the fewest units in sum that suffices. Among such sets it is the one that comes
//     first if holders are tried lowest priority first, then youngest (highest fence) first, and a
//     holder is taken if a smallest set can still be completed with it.
//
// The search for that set is bounded. If there are more than 64 such holders, or if sets of them
// have more than 64 different sums of units below the missing number (the sum 0 included), the table
// takes holders in that order until they suffice. If they don't suffice, or if permits waiting ahead
// count against T by R7, the ask set is empty. The ask set is determined again after each step, and
// asks of holders that left it are withdrawn. A table computes it only when something that it
// depends on changed: at the paths of T and their ancestors, at T, or at the claims that T is
// inside of.
//
// An ask names T, and with Take it has an end:
//
//	ttl   = TTL of the holder's session
//	after = After of T, or AfterTTL/1000 * ttl if AfterTTL is not 0 (DefaultTTL stands for a ttl of 0)
//	end   = moment of the ask + min(after, ttl if not 0)
//
// The rules measure no handshakes: a claim with After = AfterMeasured is refused as unsupported.
//
// A holder is notified of the earliest end of its asks and of its operator's or overdue end. A
// release of an asked holder ends as yielded; what counts is whether it was asked before the command,
// also if the same command ends the thief. When T has asked all holders in its ask set with an
// end, and all those ends have passed, they end as stolen and T is granted, in one step. This also
// happens if T itself was asked meanwhile.
//
// # Sessions and acknowledgement
//
// R11 leases. A session ends when its TTL has passed since it was last attached or renewed; all its
// claims end as expired at that instant. TTL 0 never ends. An attach with a shorter TTL, and
// renewals after it, never bring a finite end nearer; the lease states the time that the session
// really has. A claim with a longest hold is asked to yield (overdue) when it has been held for so
// long, and ends as overdue after the grace. Both count from its first grant.
//
// R12 acknowledgement. A holder must stop before its claim is granted to another session. It relies
// on the answers that it received, and answers get lost. For a claim C of a session S:
//
//	promise(S)     = instant of the last answer to Attach or Renew + the lease in it; without
//	                 end for TTL 0
//	statedEnd(C)   = the end in the last answer to Attach, Renew or Claim that covers C; without
//	                 end if the answer stated none, or if there was no answer
//	unackedEnd(C)  = the latest of: the end of C that S acknowledged last, and all ends stated
//	                 after it; without end if S has acknowledged none
//	reliesUntil(C) = min(promise(S), unackedEnd(C)) if S has ever acknowledged a lease
//	                 min(promise(S), statedEnd(C))  otherwise
//
// If C is stolen, revoked or overdue before reliesUntil(C), its holder is unacknowledged until then:
//
//	         ends before reliesUntil(C)
//	held ────────────────────────────────> unacknowledged holder
//	  │                                       │ reliesUntil(C) has passed, or its session
//	  │ ends otherwise                        │ releases the claim, leaves, or attaches
//	  └────────────> gone <───────────────────┘ without naming it
//
// A grant that is incompatible with an unacknowledged holder, as if that still held, is marked
// unconfirmed.
//
// The leases of a session are numbered, through all its epochs. Its key may state the number of the
// latest lease that the client received (Acked; a number that was not given yet stands for the
// latest). That acknowledges an end of C if a lease up to that number stated it, and every answer
// since that lease stated the same end:
//
//	client                              engine
//	  │ Renew(Acked=4) ───────────────>   │  unackedEnd(7) is without end
//	  │    (lost) <── lease 5: 7 ends 30s │  statedEnd(7) = 30s; unackedEnd(7) as before
//	  │ Renew(Acked=4) ───────────────>   │
//	  │ <──────────── lease 6: 7 ends 30s │
//	  │ Renew(Acked=6) ───────────────>   │  5 <= 6: unackedEnd(7) = 30s
//
// The grant of a claim that had waited states that the claim has no end. If the claim has a longest
// hold, which its holder counts from an answer alone, the grant states nothing.
//
// A client stops using a hold one margin before the end that an answer stated for it, or before the
// end of its session. It then reports that the hold lapsed ([lockkeeper.Lapsed], or an attach that
// names the claim as lapsed). The report states the reason, and the end by which the client counted,
// as the answer stated it. That end is engine time which the client only repeats, so no clocks are
// compared.
//
// A held claim that lapsed waits for nothing: its conversion is undone as cancelled. Its amendments
// are refused as not held. Neither a release nor an attach ends it, and it leaves no unacknowledged
// holder. It ends for the stated reason, at the earlier of the stated end (overdue: the end of its
// longest hold and grace; revoked: the operator's end) and the end that its session has when the
// claim lapses; at once if that has passed. Something else may end it sooner; the reason stays. This
// also holds if the ask was withdrawn meanwhile. So after the report no claim is held beyond the end
// that the engine stated to its client.
//
// Only the first report counts: one that arrives twice or late changes nothing. A report for which a
// held claim has no end (revoked, but by no operator; overdue, but without a longest hold) releases
// the claim. A report on a waiting claim ends it: as expired if the reason is the end of the session,
// else as cancelled.
//
// R13 fences. One counter, one number for every grant, upgrades included. A downgrade keeps its
// fence.
//
// # Conversions and deadlocks
//
// R14 conversion. A held claim whose targets are all shared may be amended to all exclusive. It stays
// held shared, and waits as a conversion, ahead of every other waiting claim; its own hold is not in
// its way. The grant gives it a new fence. If its wait is bounded and ends, or is refused as
// deadlock, or if it is amended back, it stays shared. All exclusive to all shared happens at once.
//
// R15 deadlock. A claim says in which hold it is made ([lockkeeper.Want].Inside): that hold goes on
// when this claim has ended. A claim is inside the claim that it names, while that one waits or is
// held, and inside all that that one is inside of. A claim that has ended, or has not arrived yet,
// is in no such chain. If names lead round in a circle, all claims of the circle are inside each
// other. Claims that are inside the same claim are independent of each other: each goes on by
// itself.
//
// The table looks for deadlocks by a simulation. Again and again, it releases every held claim that
// does not wait itself (as a conversion) and inside which no claim waits, and grants what R5 then
// allows. The simulation ignores quiet periods, sessions that have to resume, and asks. It leaves
// out waiting claims that a freeze forbids; of a conversion that a freeze forbids it has only the
// hold. The waiting claims that remain are stuck. Then it removes, again and again, stuck claims
// that are not needed. A stuck claim C is needed if some stuck claim, maybe C itself, finds ahead of it
// and incompatible with it C, or a claim that C is inside of. The claims that remain are in
// deadlock. The youngest of them (highest ticket) is refused as deadlock; a conversion is undone.
// This is repeated until nothing is stuck. After each step nothing is stuck.
//
// # Repeated requests and reasons
//
// R16 once. The same id with the same request is the same claim: the answer is its status. So is a
// revision below the claim's. The same revision with another request is refused as invalid. A higher
// revision amends. An amendment may raise the priority of a waiting or held claim, change limits of a
// waiting one (not below its units), and convert a held one, with a wait of its own (the wait of an
// amendment has no meaning for a claim that waits for nothing). Anything else is refused as invalid.
// An ended claim answers its end for one TTL after it, while its session is open. With TTL 0 the
// table forgets it at once, unless its holder is unacknowledged (R12).
//
// A key may state the low-water mark of its session (LowestOpen): the lowest id with which the
// session may still begin a claim. The highest that the session stated under its epoch counts. An id
// below it that the table does not know is over: as a claim it is refused as not held, and never
// made, however late it arrives; to end it is no error. The end of a claim below it is forgotten at
// once if the session knows the end: if the session released or cancelled the claim, or the claim
// ended in the step in which it arrived. Live claims below it are like any other.
//
// R17 reasons. See [lockkeeper.Reason] and [lockkeeper.WaitReason]. A waiting claim, and a
// conversion, states all reasons that apply, in the order of their definition:
//
//	held by         a holder is incompatible with it by its kinds
//	behind          a waiting claim ahead is incompatible with it by its kinds, or permits waiting
//	                ahead count against it so that it doesn't fit though it would fit beside those held
//	own limit       a permits target doesn't fit beside those held
//	quiet period    nothing else is in its way
//	asked to yield  it has asked a holder
//	frozen          a freeze forbids it
//	resuming        its session has to resume
//
// Its position is 1 plus the number of waiting claims ahead of it (R5) that are incompatible with it
// by their kinds, or that want permits of a path of which it wants permits too, with a limit not
// below its own.
//
// A claim ends for one reason. The holder, List, watchers, events and logs report that one. A holder may
// know less than the engine, so its report differs in these cases:
//
//	the holder reports                    all others report
//	released                              released, or yielded if it was asked to
//	unreachable, suspended, quorum lost   expired
//	engine restarted                      nothing: the engine knows nothing of it
//
// If a message is lost, or crosses another one, all others may report what the engine knew first:
// another end of that moment instead of the holder's release, lapse or loss of contact; superseded if
// the session was taken over before the release arrived; expired if no report of a lapse arrived.
// Engines keep ends for watchers beyond the time that R16 names. A watcher that loses contact with
// its engine, or does not read for a minute, may learn of an end without its reason.
//
// A table estimates, for at most 1,024 paths, how long a hold of the path lasts: the hold time. The
// first hold sets it to its duration; each later hold moves it by a quarter of the difference,
// rounded towards zero. Holds count that ended as released, yielded or overdue, from their first
// grant to their end, for the path of each target; those that end in one step count in the order of
// session and id. Beyond 1,024 paths the table forgets the hold time that was not updated for
// longest (of one instant, the first in order of bytes). Only estimates depend on hold times.
//
// The expected length of a hold is what it announces (Expected), or else the highest hold time of its
// target paths, and at most its longest hold plus grace; 0 is unknown. The remaining time of a hold is
// its expected length less its age, or the time until the end by which it was asked to yield or at
// which it ends as lapsed (R12), if that is sooner. It is unknown if there is no such end and the
// expected length is unknown or has passed.
//
// The estimate of a wait says how long it will go on if everything lasts as expected. It is no
// promise: claims of higher priority may come, and claims ahead may wait elsewhere.
//
//	estimate = rest + turns
//
// rest is the longest of these times, for the claim and for the first claim that its position counts:
// the longest remaining time of a hold that is incompatible with it by its kinds, and, for each of its
// permits targets that does not fit beside the units held, the shortest time after which it fits beside
// those that are left. turns is the sum of the expected lengths of the claims that its
// position counts. A claim that wants only permits counts with length times units divided by limit
// (of the target for which that is most, rounded up). Of the other claims, those that follow each
// other and are each compatible by their kinds with the one before count once, with the longest. The
// estimate is 0, unknown, if a part of it is unknown, if it is more than lockkeeper.MaxDuration, if
// the claim is soft or a freeze forbids it or its session has to resume, and if more than 1,024
// claims are in its way, held (by either count of rest) or in the queue (by its position). A wait
// that timed out keeps position and estimate of its end.
//
// # Operators, restarts and time
//
// R18 operators. A freeze of a path acts as a held exclusive target on it would, but holders do not
// notice it. A freeze may also name lockkeeper.Root, which covers all paths and can't be locked: it
// acts as a freeze of every tree. A freeze lasts for a duration, unless another freeze of the same
// path replaces it or it is thawed. To thaw a path that is not frozen is refused as not held. A thaw
// names a path and no freeze, so its repetition cannot tell whether it worked: a client that repeats
// one without an answer takes that refusal for success. A revocation of a waiting claim ends the
// claim. A revocation of a held claim sets an operator's ask, whose end is the TTL of the claim's
// session, or DefaultTTL, after that moment; at that end the claim ends as revoked whether or not
// anybody waits. A forced revocation ends it at once. A second revocation never moves the end to
// later. The holder is notified of the end with the operator's note and name.
//
// R19 restart. [Restart] makes every session resume. A session that was attached since the last
// restart gets its whole TTL again, because the engine may have answered renewals and lost them. A
// session that still has to resume keeps the rest of its TTL: no answer has promised more since.
// While a session with a TTL has to resume, the engine records its time at short intervals, so that
// this rest passes however often the engine restarts. An engine answers an Attach only when the
// Attach can't be lost any more.
//
// Until a session is attached, commands with its key are refused; its waiting claims keep their
// position but are not granted and ask nobody. An engine that restarts may not know any more what it
// answered last. So from then on the promise of a session is at least its end, and no end counts as
// stated for any claim (R12).
//
// Attaching a session that is open ends the claims that are not named, as superseded, except those
// that lapsed before or by this attach (R12). It gives the session a new epoch: one counter, one
// number for every attach. An attach names the epoch that it follows, 0 for none. If the session is
// open, also if it has to resume, and has another epoch, the attach is refused, with the session's
// epoch, and changes nothing: so an attach that arrives late, or twice, takes nothing back from its
// successor. If the session is not open, the engine ignores the epoch that the attach names.
//
// R20 time. [Command].At is the engine's time, from 0. A command that is earlier than the table's time
// happens at the table's time. Before a command, everything that falls due until then happens at its
// own instant, in order of time, as if a command had come exactly then. At one instant the order is:
//
//  1. ends, of sessions, holds, waits and freezes
//  2. asks for overdue holds
//  3. settle
//  4. the command
//
// To settle is: all grants; then hopeless waits and deadlocks; then the ask sets; then the first thief
// in the queue that may take; and again from the start until nothing changes.
package table
