// Package disklock keeps claims in the memory of one process, and every command in a journal in a
// directory, so that the claims survive kill -9 and a loss of power. It implements every rule.
// Other processes and machines use it through a server.
//
// # Group commit
//
// The journal is a SQLite database. Callers apply their commands to the table and append the
// entries to a batch, one after the other. One goroutine, the writer, commits batches: one batch is
// one row and one sync. Commands that arrive during a sync share the next one. The writer begins when
// somebody waits for an entry, and else within 5 ms: a release mostly shares the sync of the next
// claim.
//
//	caller A ─ Step, Append ─┐             ┌─ answer A
//	caller B ─ Step, Append ─┼─> batch 8 ──┤  answer B, notifications of A and B
//	caller C ─ Step, Append ─┘      │      └─ answer C
//	                                │
//	writer:  ... commit row 7, sync ┤ commit row 8, sync, mark 8 ┤ commit row 9 ...
//	                                                             └─ batch 8 is safe
//
//	batch:  open ── writer takes it, or a snapshot seals it ──> being committed ──> safe
//	                                                                 │
//	                              disk full: retry, 0.1 s to 5 s <───┤
//	                                                                 └─ any other error ──> lost
//
// Invariants: The writer commits rows in the order of their numbers. A batch is safe when its row
// is written and synced and the mark names it. No caller gets an answer, and no session a
// notification, of an entry before its batch is safe (package keeper has the exceptions). After an
// error other than a full disk the writer never writes again, because after a failed sync the
// system may report pages as written that never reached the disk.
//
// # Files
//
//	journal.db      the newest complete snapshot, and the rows after it
//	journal.db-wal  SQLite's log
//	mark            the last safe row; written before the answers, not synced
//	lock            locked while a process has the directory open
//
// Open verifies these files against each other, restores the snapshot, and replays the rows. Each
// row has a checksum that includes the checksum of the previous row, and the counters of the table
// after the row. Package record encodes entries and snapshots. Open refuses entries of other rules.
package disklock
