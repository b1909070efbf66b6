// Package replica is one node of a cluster that keeps one table behind a Raft log: a step machine
// over go.etcd.io/raft/v3 and package table. It has no clock, goroutine or I/O. Its caller brings
// calls, messages, the boot clock of the machine and the news that a write is durable, and carries
// out the [Output]. So a simulation can run whole clusters of it.
//
// # The way of a call
//
//	node that has the call      leader                        every node
//	  Call ──── call ──────────>  queue
//	                              stamp with its time
//	                              propose a batch ── append ─>  persist
//	                              committed by a majority ───>  apply to the table, in order
//	  answer <───────────────── the node itself applied the entry
//
// A node applies an entry when it is committed, and answers a call when it has applied the call's
// entry. So an answer never states what a majority may forget, and the terms of leaders do not
// matter to it. Nodes forward calls, never proposals: only the leader stamps (R20).
//
// A call that has not been sent to a leader waits for one. If the leader changes after the call was
// sent, its outcome is unknown: the answer is [lockkeeper.ErrUnavailable], and the client repeats the
// call (R16). A call has a deadline too, so it gets exactly one answer, whatever is lost.
//
// A call is sent to one node for one term, with a number. The node takes it only if it leads in that
// term, and takes each number once. A node that leads no longer refuses no number that it may have taken.
// So a call is in one entry at most, and in none after it was refused or denied, however often and late
// its message arrives. A call that repeats it is another one, so a command may be applied twice, or late.
// R16 and the epochs of sessions make that harmless, also after the table has forgotten the claim,
// because the key states the lowest open id. A client that is denied the repetition of a claim therefore
// ends the claim before it forgets the id.
//
// A node outside the configuration of the log gets nothing of the log: its calls wait until the leader
// adds it.
//
// # Time
//
// A leader stamps nothing before it has applied an entry of its own term. By then it has applied all
// that earlier leaders committed, and its time goes on from there:
//
//	time = table.Now() at that moment + own boot clock since that moment
//
// No wall clock and no other node's clock is read. Between two leaders time stands still, which
// only lengthens leases: an earlier leader stamped the last entry before the new one applied it. While
// something falls due by time, the leader proposes a Pass for it, and at least one entry in each
// [Config.RecordEvery], so that time passes however often leaders change. A change of the leader
// is no restart (R19): every answer is in the log, so no session has to resume.
//
// # Settings
//
// Beside the table, the log makes the settings of the cluster: who its nodes are, how many vote, who
// has which rights. A [Setting] changes by compare-and-set ([Replica.Put]), a call like any other. A
// change of the configuration may bring settings with it ([Replica.Change]): all nodes make both, or
// neither. Every node has all settings, and its caller is told of changes ([Config.Changed]).
//
// # Policy
//
// A setting may state what callers may do ([PolicyKey]). The node at which a call came in says who makes
// it ([Caller]). A ready leader asks a [Decider] before it puts a call into a batch:
//
//	permitted ──> proposed
//	denied    ──> the caller's node: answers
//
// A denial is final for the call (see above). A change of the policy is the last call of its batch, and
// the leader decides nothing until it has applied it. So each call in the log was permitted by the
// policy at its position.
// All nodes apply what was permitted, without asking again: they need not agree about rights.
//
// # Reads
//
// [Replica.Read] is answered when this node has everything that was answered anywhere before
// the read began: the leader confirms its leadership by a majority (ReadIndex), and the node applies
// all that was committed by then. There are no leader leases.
//
// # Writes
//
// Raft decides on messages that may leave only after a write is durable. These wait in the replica
// until [Replica.Persisted] names the write; all others leave at once, so a slow disk of a leader
// delays no follower. A new commit index alone is no write: what is committed is durable on a
// majority already. So a call costs one write on each voter. That of a change of the configuration is
// one, and no entry follows the change until the leader's disk has it. Otherwise a node that no longer votes
// could have entries that all voters have lost, and refuse its vote to a voter that has lost the commit
// index, too, and therefore still asks for it. After a crash, the caller starts a new
// Replica with all that was durable. If any durable write is missing, the node must never run under
// the same id again: it may have voted, or stored an entry that a majority counts on. It gets a new
// id.
//
// # Equal states
//
// At every multiple of [Config.SnapshotEvery], each node makes a snapshot of its table and settings,
// and the leader states the hash of its own in the log. A node with another hash stops and says so. A
// snapshot names its position in the log.
//
// # Versions
//
// Nodes step the table under the version of the rules that the settings state, not under that of
// their program, and write entries and snapshots under it. [Rules] says how it rises when all nodes have a
// later program. A node whose program does not have the version stops and says so ([ErrVersion]); it
// goes on under its id with another program.
//
// # No quorum
//
// A node that receives nothing from a leader for an election timeout has no contact
// ([Status.Contact]): its sessions may learn that no lease can be renewed now. Nothing is lost if the
// contact returns before their deadlines.
//
// # Simulation
//
// The tests of this package run whole clusters and their clients in one goroutine, in virtual time,
// from a seed. They run the product's code for all decisions, and fake what surrounds it:
//
//	the product's own                                    fake
//	Replica, raft.RawNode, the forms of its messages     network: delays, loss, copies, order, cuts
//	package table, package record                        boot clocks: drift, jumps, stops
//	package voters: who votes, who leads                 processes: crashes, pauses, other programs
//	package deadlines, by which lockkeeper.Client        disks: lost and torn batches, full, slow, lost;
//	counts its leases                                    in some worlds package storage is the disk
//
// Package history judges what clients observe, and the tables of all nodes are compared after every
// command. Then the world becomes whole, and every client must be served. A failure replays from its
// seed and is shrunk to the faults that it takes.
//
// SQLite, sockets, the goroutines of package node and those of lockkeeper.Client are not simulated:
// their own tests use real processes and testing/synctest.
package replica
