// Package quorumlock keeps claims on a cluster of our own servers. Each node has the table behind a
// Raft log, and any node answers any caller. While a majority of the voters lives and reaches each
// other, locks are granted; without it nothing is granted and nothing is lost. It implements every
// rule.
//
//	caller ─> Engine of any node ── call ──> leader ── entry ──> majority: durable ──> every node applies it
//	   ^                                                                                     │
//	   └───────────────── answer, notifications, watchers: from the node's own table <───────┘
//
// A call is answered when a majority has its entry on disk and the node that has the call has applied
// it. So an answer survives the loss of a minority of the voters, disks included, and the loss of power of
// all. If the leader is lost meanwhile, the outcome is unknown (ErrUnavailable), and the caller repeats
// the call by its id (R16), at any node. A change of the leader is no restart (R19): sessions, holds,
// positions and fences stay, and the time stands still until the next leader goes on with it.
//
// A list has all that was answered anywhere before it began. Watchers see the changes of the node's own
// table, in their order, which is the same on all nodes.
//
// Without a leader, calls wait until their own contexts end, for at most 10 s, and then return
// ErrUnavailable with the cause. A node without contact for an election timeout (1 s) ends its
// watchers with ErrUnavailable and notifies its sessions, so that clients ask at once.
//
// # Nodes
//
// [Found] makes the first node of a cluster in a folder, [Join] makes another one by a join token, and
// [Open] runs the node of a folder. A node has one listener for the other nodes and for new ones. All
// nodes that answer have the table; 1, 3 or 5 of them vote.
//
//	Found ──────────────┐                 ┌──────── Close, crash ───────┐
//	                    v                 v                             │
//	Join ─────> folder with a node ── Open ──> starting ──> ready <──> no quorum
//
// Who belongs to the cluster is in its settings, in the log. [Engine.SetRank], [Engine.SetVoters],
// [Engine.Transfer] and [Engine.Remove] change them at any node, and the leader carries that out.
// [Engine.Cluster] says what is the case.
//
// The parts: internal/replica is a node without I/O, internal/node runs it, internal/storage is its
// disk, internal/founding its first log, internal/peers carries its messages, internal/join lets nodes in,
// internal/voters decides who votes, internal/rights what identities may do.
package quorumlock
