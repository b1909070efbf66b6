// Package node runs one [replica.Replica]: it gives it the time, calls of this process, messages of
// other nodes and the news of its disk, and carries out what it asks for.
//
// A mutex guards the replica and its table, the mutex of a [keeper.View], which shows the table to
// sessions and watchers. Every input takes this way:
//
//	callers ─> mailbox ─┐
//	ticker, timer, transport, writer ─> mutex: input, Output ─> Transport.Send
//	                                                      ├───> waiting calls and reads
//	                                                      └───> writes that wait for the writer
//	writer goroutine: takes all writes that wait ─> Storage.Write ─> input: Persisted
//
// So writes that come during a sync share the next one. One goroutine empties the mailbox: the calls
// that have come since it last did are one input, and so are the messages that have arrived together.
// So they share an entry of the log, the messages and the sync for it. A call in the mailbox has a
// caller that waits, or a function ([Node.Start]), which is called with the answer when the mutex is free again;
// a [Transport] may drop messages. The writes that wait are bounded by
// replica.Config.MaxUnwritten, the calls by MaxQueued.
//
// # No contact with a leader
//
// A call or read waits for a leader until its own context or replica.Config.CallTimeout ends it.
// Calls that come before the cluster is up wait in the same way. When a node has had no contact for
// an election timeout, it is suspended: its watchers end with an ErrUnavailable that says why, because
// they would show an old state as the present one. Its sessions are notified that they may have missed
// changes, so that their clients renew at once. They are notified again when the contact is back.
// Nothing is lost by that if the contact is back before their deadlines.
//
// # Members
//
// A node that leads compares the configuration of the log with [Config.Members] once in each
// election timeout. It makes at most one change, or transfers its leadership, as package voters
// decides.
package node
