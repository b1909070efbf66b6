// Package sqlitelock keeps claims in a file of SQLite that any number of processes
// on one computer use at once. It needs no server.
//
// Every operation is one writing transaction: it brings the process's copy of
// the rows up to date, applies the rules of package table to it, and writes what
// changed. SQLite lets only one process write at a time, so all processes apply
// the same rules to the same table, one after the other. Nothing is answered
// before it is committed. Calls of one process that come together share a
// transaction.
//
// The rows can be read with the sqlite3 tool: see the views held and waiting,
// and the comments in the folder schema. Whoever opens a file of an older version
// brings it up to date (see migrate.go).
//
// # Sessions and processes
//
// A session that is attached has a file beside the database by which it is
// woken, and by which the kernel tells the others that its process is dead: a
// lock that was held by a process that was killed goes to the next in line at
// once. See [Engine.SessionFile] for children. A session that is
// attached with Outlive has no such file: it lives by its TTL alone, and its
// waits are woken by the database's own log, which every change is written to.
//
// # Users
//
// Only the owner may use a new file, or also the group of its directory if the directory hands its
// group down (setgid), whatever the umask. Other users may be able to put anything beside the
// file: this package does not follow, write or remove what it has not created itself. On Linux,
// root uses another user's file as that user; elsewhere the package refuses root. See
// docs/engines/sqlite.md.
//
// # Time
//
// The engine's time is the computer's boot clock, counted from when the file was
// made. It is read inside the transaction and never goes back. After a reboot it
// goes on from the latest entry. Wall clocks decide nothing.
package sqlitelock
