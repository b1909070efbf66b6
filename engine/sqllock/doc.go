// Package sqllock keeps claims as rows of an existing database: Postgres, MariaDB or MySQL. Any
// number of processes on any number of computers use it at once; none of them serves the others.
//
// # A transaction
//
// Calls of one process that wait at the same time share a transaction of the database:
//
//	begin ─> latch ─> read ───────> decide ─────> verify ─> write ─> committed
//	  ^                │ more paths   │ error       │ errWider,       answer callers,
//	  │                v              v             v errPartial      notify sessions
//	  └──────────── rollback <────────┴─────────────┘
//
// It takes these steps:
//
//   - latch: the paths of the commands exclusively, their ancestors shared. So calls at user/1 do
//     not wait for calls at user/2; an exclusive claim of user waits for both transactions, which
//     take milliseconds.
//   - read: the clock, a block of numbers for fences and tickets, and every row that may bear on
//     the decision: the claims at these paths, above and below, and all that those depend on (see
//     scope.go). If a waiting claim that it reads also waits elsewhere, the transaction begins
//     again with those paths latched too. After five attempts it latches the whole tree.
//   - decide: package table applies the commands to a table of these rows.
//   - write: the changed rows. A transaction that writes a session or its claims locks the
//     session's row and checks that its version is the one read.
//
// errWider says that an ended hold concerns paths that were not read, and errPartial that the
// prefix of a queue was not enough (below): the transaction rolls back and begins again.
//
// A failed transaction has one of five outcomes (type outcome). If another transaction was in the
// way, or the database could not be reached, the worker repeats it; if a latch stays taken, or one
// call fails for itself, the worker splits the calls, so that none delays the others. After an
// unknown outcome the repetition finds claims by their ids, so nothing happens twice (R16).
//
// Latches and settings end with the transaction, so a pooler may give each transaction another
// connection.
//
// # Partial reads
//
// A transaction must not read a queue of ten thousand claims to grant one. If a queue is long, it
// reads a prefix: the 32 claims at its front (bounds.prefix), or only 4 (bounds.shortPrefix) if the
// process knows a claim that waits for the path exclusively. A new claim takes a ticket behind all
// claims of its priority without reading them.
//
//	short prefix (4) ──errPartial──> prefix (32) ──errPartial──> the whole queue
//
// The invariant: the decisions equal those of a full read, and what a partial read leaves undecided
// is decided by a later transaction. Holders, and ended holds that their clients have not
// acknowledged, are always all read; and a waiter beyond the prefix never blocks a claim of the
// prefix (R4, R5). So the prefix is decided correctly. verify returns errPartial, and the
// transaction reads more, if something could depend on claims beyond:
//
//   - a claim beyond the prefix was granted: claims before it may have been first;
//   - the prefix is short and no claim of it excludes all claims beyond: some of them may be
//     granted beside it;
//   - a claim beyond the prefix asks a holder to yield, or did after some command (R10): the set of
//     claims that ask depends on the whole queue;
//   - a nested claim or a conversion began to wait: deadlock detection needs all waiters (R15).
//
// After the commit a further transaction checks the rest of a queue if a claim was granted and no
// exclusive claim of the prefix blocks the claims beyond, or if no claim of the prefix waits any
// more. The position and the estimate of a claim beyond a prefix are not known, and are left out of
// its status.
//
// local (claims of this process) and longQueues (queues of any process) remember which queues are
// long. They only save round trips: if they are wrong, a transaction that finds more than 1,024
// claims (bounds.mostClaims) begins again with prefixes.
//
// # Sessions
//
// A renewal takes no latches. It locks the rows of its sessions; a transaction that has read them
// before and writes to them begins again. So no transaction shortens a hold on the ground of an
// older promise (R12).
//
// The end of a session is one row. Its claims end with the next transaction that reads them; the
// process that ended the session starts one that reads all of them.
//
// # Waking
//
// A transaction that makes room writes the grants, whichever processes the claims belong to. For a
// claim of another process it inserts a row into wakeups, and in Postgres it sends a notice. Behind
// both, every process checks its waiting claims every two seconds and whenever something falls due.
//
// MariaDB and MySQL send no notices: a process with waiting claims polls its wakeups, often after
// an event, and less often the longer nothing happens.
//
// # MariaDB and MySQL
//
// Latches are 4,097 rows of a table, locked until the transaction ends. So two paths may share one,
// and then wait for each other without need. Every statement that locks rows names them by their
// keys and forces the index: otherwise the server would read a small table whole, and wait for all
// rows that others have locked. The server counts lock timeouts in whole seconds, so other calls at
// the paths of a stopped process wait for a second.
//
// # Time
//
// The database's clock is the only clock: a transaction reads it after it has its latches. The
// client counts its lease from the moment of its request, which is earlier.
package sqllock
