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
// The parts: internal/replica is a node without I/O, internal/node runs it, internal/voters decides
// who votes.
package quorumlock
