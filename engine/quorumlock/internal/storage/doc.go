// Package storage is what one node of a cluster has on its disk: its identity, and the effect of all
// writes of its [replica.Replica]. It is a folder with one SQLite database (package dbfolder).
//
// # States
//
//	Create ──> whole node or none ── Open ──> open ── Close ──> closed
//	                                          │  ^
//	              ErrFull: nothing is durable │  │ Write, also the same one again
//	                                          ├──┘
//	                                          └── any other error of Write ──> failed, for good
//
// # Writes
//
// One call of [Store.Write] is one transaction, synced before it returns. So after a crash all of
// its writes are there, or none, and all earlier calls are there.
//
// If the disk is full, SQLite has rolled back, and nothing of the call is durable: the caller repeats
// it before all later writes, when there is room. No message of the replica has relied on it. After
// any other error, such as a failed sync, nobody knows what is durable, and the system may report
// pages as written that never reached the disk. Then the Store never writes again, the caller stops
// the replica ([replica.Replica.Failed]), and the folder stays locked until the process ends. The
// next process opens what is there; that is the write as a whole or nothing of it.
//
// # Losses
//
// A node that lost a vote or an entry must not go on under its id: a majority may count on it. Open
// refuses a folder with [ErrLost] if it detects that something durable is missing or changed:
//
//	in a row                sums; the sum of an entry includes the sum of the entry before it, and
//	                        one row, which every transaction replaces, has the sum of the last entry
//	of a row or page        the entries have no gaps; SQLite's own check
//	in SQLite's log         frames after a damaged one (dbfolder.ExamineLog)
//	of SQLite's log         the database states that it was not closed
//	of last transactions    the mark names the last transaction; exact unless the power was lost
//	a file of another node  all sums and the mark begin with the identity
//	a copy of the folder    inode and birth of the database, on ext4, XFS, Btrfs and F2FS
//
// The unfinished tail of a transaction that no Write has confirmed is no loss.
//
// Not detected: an older state of the whole disk, such as that of a virtual machine or a volume, or
// an older copy written over all files in place; the last transactions before a loss of power, if
// the disk reported them as written. Other nodes can detect it: [Store.Opened] rises with every
// Open, so a node that has seen a higher number of the same id knows that something is missing.
//
// A person who knows that nothing is missing, such as after moving the folder of a stopped node, or
// whose cluster has only this node, empties the mark (": > mark"). Then Open accepts what is there
// if its sums are right.
//
// # Size
//
// A snapshot replaces the entries up to its index, and SQLite reuses their pages. So the database
// has at most about
//
//	2 snapshots + entries between two snapshots
//
// and SQLite's log has at most 4 MB and the largest transaction.
package storage
