// Package sqlitelock keeps claims in a file of SQLite that any number of processes on one computer
// use at once. It needs no server.
//
// Every operation is one writing transaction: it brings the process's copy of the rows up to date,
// applies the rules of package table to it, and writes the changes. SQLite lets only one process
// write at a time, so all processes apply the same rules to the same table, one after the other.
// The engine answers no call before the commit. Calls that wait at the same time share a
// transaction.
//
// The sqlite3 tool shows the rows: see the views held and waiting, and the comments in the folder
// schema. A process that opens a file of an older version updates it (see migrate.go).
//
// # Sessions and processes
//
// A session that is attached has a session file beside the database. Other processes write to it to
// wake the session's process, and its lock tells them whether that process lives: when a process is
// killed, the kernel releases the lock, and the next waiter gets the holds at once. See
// [Engine.SessionFile] for children. A session that is attached with Outlive has no such file: only
// its TTL ends it, and writes to the log of the database wake its claims.
//
// # Users
//
// Whatever the umask, only its owner may use a new file. If the directory hands its group down
// (setgid), the group may use it too. Other users may be able to put anything beside the file: this
// package does not follow, write or remove what it has not created itself. On Linux, root uses
// another user's file as that user; elsewhere the package refuses root. See docs/engines/sqlite.md.
//
// # Time
//
// The engine's time is the computer's boot clock, counted from the creation of the file. A
// transaction reads it after it has begun, and it never goes back. After a reboot it goes on from
// the latest change. Wall clocks decide nothing.
package sqlitelock
