// Package limits counts what each identity uses of one server, and enforces its limits. The server
// of the wire protocol, package access and the HTTP API share one Ledger.
//
// Three kinds of things are counted:
//
//   - Resources that a caller takes and gives back: connections, watchers, lists, polls, bytes
//     that wait to be sent. Take refuses at once if the identity, or all identities together,
//     would exceed a limit.
//   - Bytes of large frames that have arrived. TakeRoom wakes waiters in the order of their
//     arrival, and gives up after a second. An announced length costs nothing.
//   - Sessions and claims, which the engine may end without this process. An Identity derives
//     them from the calls that pass, the answers and the notifications. Where it cannot know, it
//     counts too many, never too few.
//
// Unauthenticated connections belong to no identity: Arrivals limits them.
package limits
