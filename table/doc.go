// Package table is the rules of Lockkeeper, and nothing else: a [Table] is the
// ordered list of claims, [Table.Step] applies one [Command] to it and says what
// came of it. It has no clock, goroutine, I/O or randomness: time comes in with
// the command, events go out as values, and the same commands always give the
// same table. Engines make it durable or spread it out.
//
// A Table is not safe for concurrent use.
//
// The stories in testdata show the rules at work; they run as tests.
//
// # The rules
//
// R1 paths. See [lockkeeper.ParsePath]. Compared byte by byte.
//
// R2 modes. Exclusive and shared cover the whole subtree of their path. Permits
// take n units, at least 1, of one path under a limit.
//
// R3 intents. A claim with a target holds, or waits with, an intent on every
// ancestor of its path: IS for a shared target, IX for an exclusive or permits
// one. Package-internal kinds and their compatibility are drawn in mode.go.
// Permits behave as IX, except that permits of the same path meet by R7. A claim
// is never incompatible with itself: an ancestor and its descendant named in one
// claim merge. Two claims, one inside the other (R15), meet as strangers do.
//
// R4 order. Waiting claims stand in line by class, then priority (highest first),
// then ticket (lowest first), then session and id of the claim. The classes are:
// conversions, hard claims, soft claims. A claim draws its ticket when it
// arrives, and a new one when it asks for a conversion. Raising the priority
// keeps the ticket.
//
// R5 the grant rule. A waiting claim is granted at the moment when it is
// compatible with every claim ahead of it: all held claims but itself, and all
// waiting claims before it in line, of which some are ahead of nobody: soft ones
// (R9), those that a freeze forbids (R18), and, for permits against permits,
// those with a smaller limit (R7). Claims are settled in the order of the line,
// again and again until nothing changes.
//
// R6 many targets. A claim with several targets is granted whole or not at all.
//
// R7 permits. On one path a permits target of n units and limit L is compatible
// with the other permits ahead when the units held there, plus the units of those
// waiting ahead with a limit of at least L, plus n, are at most L. The grant
// tells the units then in use, its own included, and a target of one unit gets
// the lowest slot from 1 that no held target has, nor a ghost (R12) if that
// leaves one up to its limit.
//
// R8 patience. A claim with wait 0 that is not granted in its own step ends as
// timed out in that step, having asked nobody. A bound ends the wait at arrival
// plus the bound; a conversion brings its own bound, counted from when it was
// asked for. A wait is outlasted when its bound ends no later than (a) a freeze
// that forbids it, or (b) a set of announced holds incompatible with it: held
// claims other than itself with Expected, whose announced end, or enforced end
// (longest hold plus grace, revocation, lapse) if that is sooner, is no sooner than
// the bound. A claim that steals doesn't count announced holds of lower priority. An
// outlasted wait ends as timed out at once, whenever it becomes so.
//
// R9 manners, for exclusive targets only. A soft claim is ahead of nobody while
// it waits; a conversion is never soft. A quiet period must also have run since
// the later of its arrival and the last end of a hold that was incompatible with
// it (R5, pairwise; a refused or cancelled claim was no hold, a downgrade is no
// end).
//
// R10 steal. A waiting claim T that may steal, is not frozen, and whose session
// has resumed, asks exactly the holders in its ask set, which is empty if a
// waiting claim ahead is incompatible with it, or an incompatible holder has a
// priority not below its own or is one that T is inside of (R15); a claim that is
// inside the same one as T may be robbed. Else it is: first, every
// holder whose hold is incompatible with T by its kinds (all but permits against
// permits on one path); then, for each permits target of T in the order of paths,
// holders with permits of that path, until enough units would be free: the units
// that are missing, those of holders already in the set not counted as held, are
// taken from a set of holders of lower priority that T is not inside of, with the
// fewest units in sum that suffices, and among such sets the one that comes first
// when holders are tried lowest priority first, then youngest (highest fence)
// first, each taken if a smallest set can still be completed with it. The search is
// bounded: if there are more than 64 such holders, or if sets of them make more than
// 64 different sums of units below what is missing (the sum 0 of no holder included),
// the table takes holders in that order until they suffice. If they don't suffice, or
// if permits waiting ahead count against it by R7, the ask set is empty. The ask set is
// determined again after each step; asks of holders no longer in it are withdrawn. A
// table computes it only when something that it depends on changed: at the paths of T
// and their ancestors, at T itself, or at the claims that T is inside of.
//
// An ask carries who asks, and with Take an end: the moment of the ask plus the
// thief's bound, or plus the TTL of the holder's session if that is shorter (and
// not 0). A holder is told the earliest end of its live asks, and of its
// operator's or overdue end. A release of an asked holder ends as yielded. When
// all holders in T's ask set have been asked by T with an end, and all those ends
// have passed, then in one step they end as stolen and T is granted. A thief that
// was asked itself meanwhile changes nothing.
//
// R11 leases. A session ends when its TTL has passed since it was last attached
// or renewed; all its claims end as expired, at that instant. TTL 0 never ends.
// Attaching it with a shorter TTL, and renewals after that, never bring a finite
// end nearer that it has; what a lease tells is how long it has indeed. A
// claim with a longest hold is asked to yield (overdue) when it has been held for
// so long, and ends as overdue after the grace, both counted from its first
// grant.
//
// R12 telling. A session has a promise: what the last answer to Attach or Renew
// promised (its instant plus what the lease told; without end for TTL 0). A claim was told an
// end: the one that the last answer to Attach, Renew or Claim for it stated, if
// any. A claim that is taken, revoked or overdue before the earlier of the two
// becomes a ghost until then: a grant that is incompatible with a ghost, as if it
// were held, is marked unconfirmed. A ghost goes when its session releases the
// ended claim, leaves, or is attached without naming it.
//
// Answers get lost. The leases of a session are numbered, through all its epochs,
// and it may state with its key the number of the latest that it heard (one that
// was not given yet stands for the latest). A claim is heard to end when its session
// states the number of a lease since which, that one included, all answers told that
// end. Once a session has stated a number, the end that counts is not the one that was
// told, but the latest of all that were told since the one that was heard last, that
// one included; no end is the latest. A grant of a claim that had waited tells that it
// has no end, or, if it has a longest hold, which its holder counts from an answer
// alone, nothing.
//
// A client stops using a hold one margin before the end that an answer told for it, or
// before the end of its session. The client then reports that the hold lapsed
// ([lockkeeper.Lapsed], or an attach that names it as lapsed). The report states the
// reason, and the end by which the client counted, as the answer stated it. That end is
// engine time that the client only repeats, so no clocks are compared.
//
// A held claim that lapsed waits for nothing: its conversion is undone as cancelled. Its
// amendments are refused as not held. Neither a release nor an attach ends it. It leaves
// no ghost. It ends at the stated end (overdue: at the end of its longest hold and grace;
// revoked: at the operator's end), or at the end that its session has at the moment when
// it lapses, if that is sooner; at once if that has passed. Something else may end it
// sooner. In each case it ends for the stated reason, even if the ask has been withdrawn
// by then. So after the report no claim is held beyond the end that its client was told.
//
// Only the first report counts: one that arrives twice or late changes nothing. A report
// for which a held claim has no end (revoked, but by no operator; overdue, but without a
// longest hold) releases it. A report on a waiting claim ends it: as expired if the
// reason is the end of the session, else as cancelled.
//
// R13 fences. One counter, one number for every grant, upgrades included;
// downgrades keep theirs.
//
// R14 conversion. A held claim whose targets are all shared may be amended to all
// exclusive. It goes on to be held shared, and waits as a conversion, ahead of
// every other waiting claim; its own hold is not in its way. When granted it gets
// a new fence. If its wait is bounded and ends, or a knot is refused, or it is
// amended back, it stays shared. All exclusive to all shared is at once.
//
// R15 deadlock. A claim says in whose hold it is made ([lockkeeper.Want].Inside):
// what is held there goes on when this claim has come to an end. It is inside the
// claim that it names, while that one waits or is held, and inside those that that
// one is inside of. A claim that has ended, or has not come yet, is in no such
// chain. If names lead round in a circle, all claims of it are inside each other.
// Claims that are inside one and the same are strangers to each other: each goes
// on by itself.
//
// Imagine: again and again, every held claim that does not wait itself (as a
// conversion) and inside which nobody waits is released, and what R5 then allows
// is granted, quiet periods, resuming sessions and asks left aside. A waiting
// claim that a freeze forbids is not there; of a conversion that it forbids only
// the hold is. Waiting claims that are left are stuck. From them, claims that
// nothing needs are taken away, again and again: a stuck claim is needed if a
// stuck claim, itself included, waits for it or for one that it is inside of, that
// is, finds it ahead and incompatible. What remains is the knot, and its youngest
// claim (highest ticket) is refused as deadlock, a conversion undone. This is
// repeated until nothing is stuck. After each step nothing is stuck.
//
// R16 once. Same id, same request: the same claim's status; revision lower than
// the claim's: the same. Same revision and another request: refused as invalid.
// Higher revision: an amendment. It may raise the priority of a waiting or held
// claim, change limits of a waiting one (not below its units), and convert a held
// one, with a wait of its own (while it waits for nothing, the wait of an amendment
// means nothing); anything else is refused as invalid. An ended
// claim answers its end for one TTL after it, as long as its session is open;
// with TTL 0 it is forgotten at once, but never while it is a ghost (R12).
//
// A session may state with its key the lowest id that it may still begin a claim
// with: all below are answered. The highest that it stated under its epoch counts.
// What is below it and not known is over: as a claim it is refused as not held, and
// never made, however late it arrives; to end it is no error. The end of a claim
// below it is forgotten at once if the session knows it for sure: if the session
// released or cancelled it, or it ended in the step in which it came. Live claims
// below it are like any other.
//
// R17 reasons. See [lockkeeper.Reason] and [lockkeeper.WaitReason]. A waiting
// claim, and a conversion, states all that apply, in the order of their
// definition: held by, if a holder is incompatible with it by its kinds; behind,
// if a waiting claim that is ahead is incompatible with it by its kinds, or
// permits waiting ahead count against it so that it doesn't fit though it would
// fit beside those held; own limit, if a permits target doesn't fit beside those
// held; quiet period, if nothing else is in its way but that; asked to yield, if
// it has asked somebody; frozen; resuming. Its place is 1 plus the number of
// claims that wait ahead of it (not those ahead of nobody) and are incompatible
// with it by their kinds, or want permits of a path of which it wants permits
// too, with a limit not below its own.
//
// A claim ends for one reason, and all report that one. The holder, List, watchers, events
// and logs differ only in these pairs, since a holder may know less than the engine:
//
//	the holder reports       all others report
//	released                 released, or yielded if it was asked to
//	unreachable, suspended   expired
//	engine restarted         nothing: the engine knows nothing of it
//
// If a message is lost, or crosses another one, all others may report what the engine knew
// first: another end of that moment instead of the holder's release, lapse or loss of
// contact; superseded if the session was taken over before the release arrived; expired
// if no report of a lapse arrived.
//
// A table remembers, for at most 1,024 paths, how long holds of them lately
// lasted: their pace. The first hold sets it to its duration, each later one moves
// it by a quarter of the difference, rounded towards zero. Those count that ended
// as released, yielded or overdue, from their first grant to their end, for the
// path of each target; of those that end in one step, in the order of session and
// id. Where paths are too many, those whose pace was longest not set or moved are
// forgotten (of one instant, the first in order of their bytes). Nothing but
// estimates depends on it.
//
// A hold's expected length is what it announces (Expected), or else the highest pace
// of its target paths, and at most its longest hold plus grace; 0 is unknown. What
// is left of a hold is its expected length less its age, or the time until the end
// by which it was asked to yield, or at which it ends as lapsed (R12), if that is sooner; it
// is unknown if there is no such end and its expected length is unknown or has passed.
//
// The estimate of a wait says how long it will go on if everything lasts as
// expected. It is no promise: nobody knows who will come with a higher priority,
// or what they who are ahead wait for elsewhere. It is rest plus turns. Rest is the
// longest time that is left of a hold that is incompatible with the claim by its
// kinds, or, for a permits target that does not fit beside those held, the shortest
// time after which it will fit beside those that are left, if that is longer; and
// the same for the first of those that its place counts, if that is longer. Turns
// is the sum of the expected lengths of those that its place counts, of which each
// that wants nothing but permits counts with its length times units divided by
// limit (of the target for which that is most, rounded up), and of the others
// those that follow each other and are each compatible by their kinds with the one
// before count once, with the longest. The estimate is 0, unknown, if a part of it
// is, if it is more than lockkeeper.MaxDuration, if the claim is soft or forbidden
// by a freeze or its session has to resume, and if more than 1,024 claims are in
// its way, held (by either count of rest), or in line (by its place). A wait that
// timed out keeps place and estimate of its end.
//
// R18 people. A freeze of a path is like a held exclusive target on it that
// nobody who holds feels. A freeze may also name lockkeeper.Root, which covers all paths
// and can't be locked: this freeze acts as one on every tree. A freeze lasts for a duration,
// unless replaced by another freeze of the same path, or thawed. A revocation of a waiting claim ends it; of
// a held one it sets an operator's ask, whose end is the TTL of its session, or
// DefaultTTL, after the moment; at that end the claim ends as revoked whether or
// not anybody waits. A forced one ends it at once. A second revocation never
// moves the end to later. The end is told with the operator's note and name.
//
// R19 restart. [Restart] makes every session resume. A session that was attached since the
// last restart gets its whole TTL again, because the engine may have answered renewals and
// lost them. A session that still has to resume keeps the rest of its TTL: no answer has
// promised more since. While a session with a TTL has to resume, the engine records its time
// at short intervals: so that rest runs out however often the engine restarts. An engine
// answers an Attach only when the Attach can't be lost any more.
//
// Until a session is attached, commands with its key are refused, its waiting claims
// keep their place but are not granted and ask nobody. An engine that restarts may
// not know any more what it answered last: the promise of a session is at least its
// end from then on, and no claim counts as told an end (R12). Attaching a
// session that is open ends the claims that are not named, as superseded, except those
// that lapsed, before or by this attach (R12). It gives the session a new epoch: one
// counter, one number for every attach. An attach names the epoch that it follows, 0 for
// none. If the session is open, also if it has to resume, and has another epoch, the
// attach is refused, with the session's epoch, and changes nothing: so an attach that
// arrives late, or twice, takes nothing back from its successor. If the session is not
// open, the engine ignores the epoch that the attach names.
//
// R20 time. [Command].At is the engine's time, from 0. A command that is earlier
// than the table's time happens at the table's time. Before a command, all that
// falls due until then happens at its own instant, in order of time, as if a
// command had come exactly then. At one instant ends come first, of sessions,
// holds, waits and freezes, then asks for overdue holds, then the line is
// settled, then the command. To settle is: all grants, then outlasted waits and
// knots, then asks anew, then the first thief in line that may take; and again
// from the start until nothing changes.
package table
