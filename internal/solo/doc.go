// Package solo implements a session with one claim that any number of processes use, known to them
// by the session's id: the steps of a CI job that share a name, the servers that answer for a claim
// made over HTTP, the commands of Terraform that lock a state.
//
// # States
//
// The engine keeps the state; a process observes it.
//
//		         Attach             Claim                 grant
//		absent ─────────▶ attached ───────▶ waiting ─────────────────▶ held
//		  ▲                   │                │                         │
//		  │                   │                │ cancelled, revoked      │ released, revoked, stolen
//		  │  Leave, or TTL    │                ▼                         ▼
//		  └───────────────────┴───────────── gone ◀──────────────────────┘
//
//	  - absent: the engine has no session with this id.
//	  - attached: the session is open and has no claim. It blocks nobody. [Session.OpenClaim] makes a
//	    session and its claim by one call of an engine that can.
//	  - waiting, held: the session has its claim. Leave, or the end of the TTL, ends both.
//	  - gone: the claim has ended. The session remembers the reason. Its claim id cannot be used again
//	    (R16), so a caller that wants a new claim leaves the session first and starts from absent.
//
// # One key at a time
//
// A process must have a key to act. It obtains the key by Attach, which invalidates all earlier
// keys. Two processes that act at the same time therefore displace each other: the engine refuses
// the older key with ErrSession, before it has changed anything. [Session.Do] repeats the operation
// after a random pause. The operations of this package are single tries to be run by Do.
//
// A [Cache] lets one process reuse its key, so that a renewal takes one exchange with the engine
// instead of two.
//
// # Unknown outcomes
//
// An operation that fails with ErrUnavailable may have taken effect.
//
//	after an unknown    the session may be   so the caller
//	Attach              attached             may do nothing: the session blocks nobody. The next
//	                                         Attach learns the present epoch from the refusal.
//	Claim               waiting or held      repeats it (R16), or ends it by Leave under the same key;
//	                                         a Claim that arrives after that Leave is refused.
//	OpenClaim           absent, waiting      discards the cached key, or repeats. The session ends
//	                    or held              with its TTL at the latest.
//	Renew               not renewed          relies only on the TTL of the last renewal that was
//	                                         answered, counted from when it was sent (R12).
//	Release, Leave      waiting or held      repeats it, or lets the TTL end the session.
//
// A process may stop for any time between two exchanges, or die. If another process acted
// meanwhile, the key is invalid and nothing happens. If none did, the session ends with its TTL.
package solo
