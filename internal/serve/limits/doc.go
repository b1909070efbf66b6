// Package limits counts what each identity uses of one server, and enforces its limits. The server
// of the wire protocol, package access and the HTTP API share one Ledger.
//
// Three kinds of things are counted:
//
//   - Resources that a caller takes and gives back: connections, watchers, lists, polls, bytes
//     that wait to be sent. Take refuses at once if the identity, or all identities together,
//     would exceed a limit.
//   - Bytes of large frames that have arrived. TakeRoom wakes waiters in the order of their
//     arrival, and gives up after a second. An announced length costs nothing.
//   - Sessions and claims, which the engine may end without this process. An Identity derives
//     them from the calls that pass, the answers and the notifications. Where it cannot know, it
//     counts too many, never too few.
//
// Unauthenticated connections belong to no identity: Arrivals limits them.
//
// # States of a session
//
//	        Attaching, Claiming                answer: Attached, Renewed, Claimed
//	unknown ──────────────────> call in flight ──────────────────────────────────> counted
//	   ^                              │ the call was refused                          │ left, or
//	   └──────────────────────────────┘ and no other is in flight                     │ now >= until
//	                                                                                  v
//	                                             everything given back, removed:     over
//
// Attaching counts the session before its call, so it is counted in flight, too. A session with a
// call in flight never expires. until = time of the last answer + TTL, and never decreases (R11).
// If the answer to an attach or a renewal is lost, until = now + the longest TTL that was
// requested.
//
// A refusal says nothing about other calls. So a session counts as long as an attach is in flight,
// or has an unknown outcome, or an answer has shown that it exists (until > 0).
//
// The answer to a departure may come after calls that opened the next session of that id. It gives
// back the claims of the epoch that left and of earlier ones. Claims of later or unknown epochs
// stay, and the session with them.
//
// # States of a claim
//
//	none ──Claiming──> in flight ──answer, notification, lease──> known ──end──> gone
//	                       │                                        ^             ^
//	                       │ the answer is lost     a state arrives │             │
//	                       └──────────────────────> unknown ────────┘             │
//	                                                   └──a lease does not list it┘
//
// The last step needs proof that the lease is new enough: the client requested the lease after the
// answer was lost (the generation at the request is at least that of the loss), no call about the
// claim is in flight, and now - began <= the shortest TTL requested. A lease lists each claim made
// within that time. gone is final; the entry remains while calls about the claim are in flight, so
// that a late answer does not count it again.
//
// An id may name another claim after its session was taken over, left or expired. So a state that
// is known under one epoch counts as unknown once a call of another epoch is in flight, and that
// call counts in full. Also, the answer ErrNotHeld to a release is old if the claim was made since:
// it ends only a claim whose answer was lost before the release was requested. Other answers of
// that kind make it unknown.
package limits
