// Package dbfolder is a folder with one SQLite database that one process has for itself, and whose
// every commit is synced. It detects most ways in which a safe commit can be lost later: a cut,
// damaged, removed or exchanged file. disklock's journal and the disk of a cluster's node use it.
//
// # Files
//
//	NAME.db      the database
//	NAME.db-wal  SQLite's log, a part of the database; see log.go
//	mark         the last safe commit; written after it, not synced; see mark.go
//	lock         locked while a process has the folder; names the process
//
// # Opening
//
// The caller opens the database twice. The first time it only reads: it verifies the content and
// compares it with the mark, and closes with CloseUnchanged if it refuses. The second time it has
// the database alone, and writes.
//
// SQLite keeps the log when the last connection closes, so a missing log means that somebody removed
// it. The caller stores in the database whether it closed it: then the log was empty.
//
// After a failed sync the system may report pages as written that never reached the disk. So the
// caller never writes again after an error other than a full disk, and keeps the folder locked until
// its process ends. The next opening checkpoints the log, which syncs its content again.
package dbfolder
