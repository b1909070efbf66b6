// Package join lets nodes into a cluster: certificates by which nodes know each other, tokens that
// admit one new node each, and the exchange by which a node joins.
//
// # Who belongs to the cluster
//
// The cluster's settings say which nodes there are, not the certificates. A certificate shows that
// its owner has the cluster's CA key or got the certificate from a node that has it, and [Allowed]
// compares it with the settings:
//
//	setting            value       stands for
//	node/NAME          Node        the node of that name: its id in the log, its key, its addresses
//	expelled/ID        reason      that id is let in never again; its node was removed or lost its disk
//	token/START        Token       a join token; START is the start of the digest of its secret
//
// One key for each name makes names unique. A name is free if its node's id is expelled. Expulsion is one
// change of one setting, and final: an id is a random number that is drawn once.
//
// # Keys
//
// Every node has a key of its own, and a copy of the CA's. So each node signs its own certificates,
// and needs no other node for that: a cluster that was switched off for a year starts again. The page
// docs/engines/cluster-certificates.md gives the reasons, and says what loss and theft of a key mean.
//
// # The exchange
//
//	new node                                   any node of the cluster
//	create the node's key, sync
//	  join: token, name ────────────────────>  token/START: unused ── compare and set ──> claimed by
//	                                             this key and name, for a new random id
//	  <────────────── id, CA, the members ───
//	store the CA, create an empty log under the id, sync
//	  begin: token, addresses ──────────────>  node/NAME: free ── compare and set ──> this id and key
//	  <────────────────────────── begun ─────
//
// The node is a member from then on, and the leader may add its id to the log's configuration. Each
// side may stop between any two steps, and each message may be lost or be delivered late. The node then repeats
// the step. All state is in the settings, and each change is a compare-and-set, so any node may
// answer any repetition, also two at a time.
//
// The two steps keep an id from being used with an empty log twice. As long as the id is no member, its
// log holds nothing, and "join" may be repeated by the same key. Once it is a member, its log may
// hold a vote, so "join" is refused: a node that has lost its log needs a new id, and the operator has to
// say so by expelling the old one.
//
// # The clock of tokens
//
// A token ends at a time of the table (see package replica). No wall clock is read, so none can
// prolong or end a token by a jump. Table time stands still while no node leads, which lengthens a
// token by that time. A new node's wall clock matters in one place, as always with TLS: it must lie
// in the lifetime of the certificates.
package join
