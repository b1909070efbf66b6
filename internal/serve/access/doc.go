// Package access decides who may do what at a server, and how much of it.
//
// A [Gate] stands between a server's protocols and its engine. Whoever comes shows
// credentials, a bearer token or a certificate, and is let in with a [Pass]: an
// engine that does what the rules allow to that identity, within its quotas, and
// that sees no other identity's sessions. The protocols know nothing of rules.
//
// # Sessions of identities
//
// Under a [Policy] the session S of the identity I is the engine's session "I:S".
// The pass puts the prefix on and takes it off, so I knows S alone, and has no way
// to name a session of somebody else where it acts as a session's owner. This needs
// no memory, so it also holds after a restart, and for several gates to one engine.
// Where an identity may name others' claims (lists, revocations, evidence), their
// refs stand as the engine has them, such as "ops:k3v9.1"; one of a session without
// an identity, made when everybody might do everything, is written ":k3v9.1".
//
// # Rules
//
// Nothing is allowed that no rule allows, and no rule forbids. What is one's own may
// always be looked at, renewed and given back, and whoever waits is told who is in
// the way. A claim is allowed if all its targets are. What there was before the
// rules changed goes on: new rules are for what is asked from then on.
//
// # Quotas
//
// What an identity has is counted before the engine is asked, so that no burst gets
// past its quota, and given back when an answer, a hint or a lease tells that it has
// ended, or when the session can't be alive any more. An answer that was lost counts
// until it is known what became of it. After a restart of the gate sessions and
// claims count as soon as they are attached, renewed or made again; what an engine
// kept meanwhile is never refused for having been there before.
package access
