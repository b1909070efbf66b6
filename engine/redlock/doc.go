// Package redlock keeps exclusive locks on 1, 3, 5 or 7 independent Redis servers, with priorities,
// a polite steal, and waiters that are woken. A minority of the servers may be lost at any time. It
// follows the Redlock algorithm (redis.io, "Distributed Locks with Redis") and the priority-redlock
// specification, and closes their known holes: fences rise, a thief never overwrites a holder, a
// server that lost its data stays out until it can do no harm.
//
// # Words
//
//	server    one Redis server; it answers requests, and never contacts another server
//	set       the N servers of one engine; they know nothing of each other but the names
//	party     one process with the engine
//	majority  more than N/2 servers; two majorities share a server
//	vote      a server's word that one claim has the paths that it wants, at this server
//	counter   of a path at a server: the number of the latest vote, or the fence stamped on it
//	promise   a server's word that it ends no vote of a session before a time
//
// # One server
//
// A server keeps sessions, claims and paths, as scripts that Redis executes one after the other.
// Before each request it settles the paths that the request names:
//
//	            first in the queues of all its paths,
//	            and nobody has a vote for one of them
//	waiting ─────────────────────────────────────────────> voted
//	  │  ^                                                  │  │
//	  │  └──────────────── Return (split vote) ─────────────┘  │
//	  │                                                        │ End, Leave, the session's end,
//	  │ End, Leave, the session's end                          │ the end of an ask or of a lapse,
//	  │                                                        │ a forced revocation
//	  └──────────────────────> ended <─────────────────────────┘
//
// The order of a queue is: priority (highest first), ticket (lowest first), session, id. A party
// chooses the ticket of a claim, so it is the same at every server.
//
// Each vote has a number: 1 plus the highest counter of the claim's paths. Therefore the numbers of
// the votes for one path rise, and no number is used twice. A path that is idle for a minute is
// forgotten; its counter lives on in the floor, which is the highest counter of the server. A path
// without a record has the floor as its counter. So the memory of a server is bounded by the claims
// and the paths in use.
//
// # A grant
//
// A party sends one message to each server, and waits for a majority:
//
//	party            A            B            C
//	  │── Claim ────>│            │            │
//	  │── Claim ─────────────────>│            │
//	  │── Claim ──────────────────────────────>│  (lost)
//	  │<── vote 7 ───│            │            │
//	  │<── vote 7 ────────────────│            │       two of three voted with one number:
//	  │                                                granted with fence 7
//
// If the numbers differ, the party raises the counters: Stamp sets the counter of a path to a
// higher number, if the claim still has the vote with the number that the party names. The fence is
// a number that a majority was voted or stamped with. So usually a grant costs one round trip, and
// else two.
//
// Fences of one path rise. The fence f of a grant is the counter at a majority. A later grant has
// votes at a majority that was voted or stamped with its own fence. The two majorities share a
// server; there the number of the later vote is above f, and the later fence is that number or a
// higher one that was stamped. So no two grants of one path have the same fence either.
//
// What a party knows of a claim at one server is two numbers: the highest vote it has seen, and the
// highest vote that is over. A vote counts if it is above those that are over. Replies that arrive
// twice, late or out of order change neither the one nor the other downwards, so they do no harm.
//
// # Promises and deadlines
//
// A session lives at each server by its own clock, until its TTL has passed since the server
// received the last Attach, Renew or Restore. A party counts from the moment when it sent the
// request:
//
//	promise(i)  = sent(i) + ttl                         for the last request that server i executed
//	end(i)      = min(promise(i), end of an ask at i)   for a server that votes for the hold
//	D(hold)     = the largest time that end(i) reaches at a majority of the servers
//
// The client stops using the hold one margin before D (lockkeeper.Margin, as with every
// engine), and the lease that an Attach or a Renew answers is covered by the D of every hold of the
// session. A grant counts only votes at servers whose promise is not before the lease that the
// client counts by, and ends more than one margin from now. If a hold loses its majority because
// servers lost their data, its party keeps the other votes until the end that its client knows.
//
// A server answers requests of an ended session with "no session". Renew never opens a session and
// never sets a vote.
//
// # Why two parties can't both act
//
// A holder H acts until D(H), so at each moment a majority of servers has promised not to end its
// votes. A claim T is granted when a majority votes for T, so when each of these has ended the vote
// of H. The two majorities share a server. It ended the vote of H although it had promised not to.
// That happens only if
//
//   - H gave the vote up: its party released the claim, or left;
//   - an ask ended before the promise: a steal with a factor below 1;
//   - an operator forced the end;
//   - the server lost its data: condition 2 below.
//
// A steal with factor 1 waits for the whole TTL of the victim, so its end is never before the
// promise: it gives up nothing. A lower factor, or a wait in seconds that is shorter than the TTL,
// gives up that the victim is certain to know: if the victim did not acknowledge the end that it
// was told, the grant is marked unconfirmed, and only the fence protects the resource. The same
// holds for a forced end.
//
// No clocks are compared. The argument needs that clocks of servers and parties run at the same
// rate, within the margin, and that no server's clock is set forward: Redis has no other clock.
//
// # One party at a time has a session
//
// Only the party that attached a session last knows the votes of its claims, so only its key is
// valid. A call through another party gets ErrSession. That party attaches first, following the
// present epoch; servers then state the session's claims, and the former party loses the session.
// An Attach that follows another epoch is refused by a majority, and changes nothing there. A server
// that had missed the former Attach may have taken its epoch; the refusal states that one then, and
// the Attach that follows it takes the session over.
//
// An Attach brings nothing back that ended. Servers end a session one after the other, so a server that
// still lists a claim proves nothing. At an Attach, and so at a takeover, a claim goes on only if a majority
// of the servers had both the session and the claim; otherwise it has ended:
//
//	A               B                  C                 claim of the session
//	has both        has both           any             ──> goes on
//	has both        lacks the claim    lacks either    ──> ended
//	has both        lacks either       no answer       ──> ended; the vote stays as long as A promised
//
// In the last case the former party may still count on the votes of A and C. Its client relies on the hold
// until it gets the answer to the Attach, or until the end that it knew. A claim that goes on with too few votes
// for a hold, because servers do not answer, waits; its party returns none of its votes that long.
//
// "lk serve" attaches for names, HTTP claims and clients that come from another server, so several of them
// may share one set.
//
// # A polite steal
//
// The holder stays holder of record. A thief is only the successor that is designated: the first in
// the queue, if it may steal and its priority is higher than that of every holder of its paths.
//
//	thief T               server               holder H
//	  │── Claim, Take 10s ──>│                    │
//	  │<── waiting, asking ──│── asked, ends 10s ─>│   message, and in every answer to Renew
//	  │                      │                    │   H finishes its step
//	  │                      │<────── End ────────│   the acknowledgement of the application
//	  │<────── vote 8 ───────│                    │
//
// If H does not answer, the vote of H ends with the ask, and T gets it in the same step. If T dies,
// it leaves the queue when its session ends, and the ask is withdrawn: H was never robbed. A more
// urgent thief M stands before T in the queue, so the server asks H for M; T goes on waiting. So
// there is no chain of thieves, whatever the number of priorities: a wait is one handshake or one
// lease.
//
// # Split votes
//
// If several claims arrive at once, each may get the vote of some servers, and none a majority. A
// party gives its votes to a rival that has a majority, or else to the rival that goes first in the
// order of queues, after a random pause of at most 3 ms. A rival has a vote, or waits ahead. A
// server that has not answered for 50 ms is left out. The claim that goes first never gives up a
// vote, so one claim gets them all. If the rival can't use the vote, because it is over or waits
// for another claim too, nobody else gets it: the claim that returned it has it back, and returns
// it after a second without naming a rival. Return names the number of the vote, so a Return that
// arrives late takes back no later vote.
//
// # Four conditions
//
// Condition 1, initialisation once. Parties initialise a set only when all N servers answer and all
// are empty. Each server then gets a random generation, and the first one stays; the id of the set
// is a hash of all generations, so parties that do this at once make the same set. Each server
// keeps the id, the generations of all and their names. Its floor begins with the time in
// microseconds, so that fences rise also above those of a set that was there before, unless the
// clock was set back.
//
// Condition 2, a server that lost data stays out. A restart is noticed by the run id of the Redis
// process. A server that restarted, and did not write each change to disk before it answered, may have
// lost votes and promises. It begins again, empty, in a new generation:
//
//	member ── restarted, lost data ──> barrier ──> out, until the wait is over ──> member
//	                                      │                                        floor raised
//	                                      └ a majority R of others, which lost nothing, has
//	                                        the new generation
//
// Every request names the generations of all servers that its party knows, and a server refuses
// those that are older than its own. So after the barrier R makes promises only to parties that
// know of the loss and do not count the lost server. The wait is the longest time that a session
// has left at a server of R after the barrier; the floor becomes the highest floor of R. Any
// majority with a vote of the lost server shares another server with R. Without the wait, the lost
// server could vote for a second holder while the first one counts on it. Without the floor, a
// fence could fall. If no such majority R exists, the engine refuses all work, and only "lk reset"
// starts a new set.
//
// No answer is taken for that of another process. A party has two connections to each server, one for
// messages and one for requests, and asks on each for the run id before anything else. Both must name the
// process whose record the party has read. A connection ends with the process that accepted it, and
// neither is ever replaced by itself: after a failure the party makes and asks both again. So an address that
// leads to one server or another, by turns, is refused; and nothing may stand between that passes requests
// of one connection to several processes.
//
// Condition 3, nothing revives. Restore sets the record of a hold at a server that lacks it: only
// if no other claim has the vote there, and the counter is not above the fence of the hold, in one
// script. It is never sent after the party's own deadline. A release leaves the counter as it is.
// Restore also sets the record of a claim that waits, for a Claim makes none below the session's
// low-water mark (R16). So a server that was away when the claim began to wait takes part in its
// grant. An Attach lists all claims of the session: a vote that it does not list has ended.
//
// Condition 4, bounded memory. See "One server".
//
// # What arrives twice, late or never
//
//	Attach    names the epoch that it follows, and a nonce: a repeated one succeeds again, one that
//	          comes after its successor is refused
//	Renew     only raises the end of a session that has not ended
//	Claim     has an id: a repeated one is answered with its state; after End the server remembers
//	          the id, until the session says that it is below its low-water mark (R16)
//	Stamp     raises a counter, of one vote
//	Return    gives back one vote, by its number
//	End       leaves a mark also where the claim has not arrived yet
//	Restore   above; one of a waiting claim that comes after its end makes a record that nobody counts,
//	          and that the next renewal of the session ends
//
// # Order
//
// Tickets are microseconds of a common time base: the party's clock, corrected by the median over
// the servers of the differences between their clocks and its own, each measured with the shortest
// round trip so far. So a ticket is never below the servers' clocks, and above them by the way to the
// servers, at most. A party answers that a claim waits only when the claim's ticket has passed on the
// servers' clocks. It has passed when the replies arrive, unless the party has measured by slow
// exchanges alone. So of two requests with one priority, the one that began to wait goes first if the
// other was sent after it had been answered, as long as no clock is set. Of two requests that are on
// their way at the same time, either may go first.
//
// A claim of several paths is one request to each server: it gets votes for all of them or for
// none.
package redlock
