// Package sqllock keeps claims as rows of a database that is already there: Postgres,
// or MariaDB and MySQL. Any number of processes on any number of computers use it at
// once; none of them serves the others.
//
// # A transaction
//
// Every operation is a transaction that (1) latches the paths that it is about, (2)
// reads all that may stand in the way there, (3) applies the rules of package table to
// that, and (4) writes what changed. Calls of one process that come together share a
// transaction. Latches are shared for what is above a path and exclusive for the path
// itself, so what happens at user/1 does not wait for user/2, and an exclusive claim
// of user waits for both transactions, which are over in milliseconds, and then sees
// what they have done.
//
// What a transaction reads is closed: whoever waits there is read with all that it
// waits for (see scope.go). Of a long line only the head is read, since what becomes of
// the head does not depend on those behind it; and only its tip where they wait one after
// the other.
//
// Latches end with the transaction, and so does every setting. Nothing depends on
// which connection is used, so a proxy may give each transaction another one.
//
// # Sessions
//
// A renewal latches nothing: it locks the row of its session. Whoever writes
// anything of a session, its claims included, locks that row and makes sure that it
// is as it was read. So an end that comes sooner than a holder was promised is never
// decided on an old promise (R12).
//
// When a session ends, that is one row; what it had ends with the next transaction that
// finds it somewhere, and the process that has ended it looks for all of it.
//
// # Waking
//
// A grant is written by whoever makes room. If the claim is another process's, its bell is rung: a row,
// and in Postgres a notice. Behind both every process looks by itself
// at what waits, every two seconds and whenever something falls due.
//
// MariaDB and MySQL tell nothing: there every process of which somebody waits looks at its
// bells, soon after something happened and then the less often the longer nothing has.
//
// # MariaDB and MySQL
//
// Latches are rows of a table that are locked until the transaction ends, 4,097 for all
// paths; so two paths may share one, and then wait for each other in vain. Every
// statement that locks rows names them by their keys, in a way that leaves the server no
// choice how to find them: it would read a small table whole, and wait for whatever
// others have locked there. The server counts the time that a transaction may stand
// still in whole seconds, so who is stopped in one is felt at its paths for a second.
//
// # Time
//
// The database's clock is the only one: it is read inside each transaction, after the
// latches. What is promised counts from when it was asked for.
package sqllock
