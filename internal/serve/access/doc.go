// Package access decides who may do what at a server, and how much of it.
//
// A [Gate] stands between the protocols of a server and its engine. A client shows credentials, a
// bearer token or a certificate, and the gate admits it with a [Pass]. A pass provides an engine
// that permits what the rules allow to that identity, within its quotas, and shows it no session of
// another identity. The protocols know nothing of rules.
//
//	credentials ──Admit──> Pass of an admission ──withdrawn──> every call is refused with ErrDenied
//	                         │ the policy changes: new rights, from the next call on
//	                         └ the credential expires, or the policy no longer has it: withdrawn
//
// # Sessions of identities
//
// Under a [Policy] the session S of the identity I is the engine's session "I:S". The pass adds and
// removes the prefix. So I knows S alone, and cannot name a session of another identity where it
// acts as a session's owner. This needs no memory, so it also holds after a restart, and for
// several gates to one engine. Where an identity may name claims of others (lists, revocations,
// evidence), it uses the engine's references, such as "ops:k3v9.1". A claim of a session without an
// identity, made while the server had no policy, is written ":k3v9.1".
//
// # Rules
//
// The default is to deny; there are only rules that allow. An identity may always see, renew and
// release its own claims, and a waiter learns who blocks it. A claim is allowed if all its targets
// are. A change of the rules applies to later requests; existing claims go on.
//
// # Quotas
//
// A claim or session counts before the engine call, so no burst exceeds a quota. It stops counting
// when an answer, a notification or a lease shows that it has ended, or when the session must have
// expired. If an answer is lost, the claim counts until its outcome is known. After a restart of
// the gate, sessions and claims count again as soon as they are attached, renewed or repeated; a
// quota never refuses a claim that the engine has already. Package limits does the counting.
package access
