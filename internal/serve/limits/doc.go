// Package limits knows what each identity uses of one server, and what it may use. The server of
// the wire protocol, package access and the HTTP API share one Ledger.
//
// Three kinds of things are counted:
//
//   - Resources that a caller takes and gives back: connections, watchers, lists, polls, bytes
//     that wait to be sent. Take refuses at once when the identity, or all together, have as much
//     as they may have.
//   - Bytes of large frames that have arrived. Room wakes waiters in the order in which they
//     came, and gives up after a second. An announced length costs nothing.
//   - Sessions and claims, which the engine may end without this process. An Identity follows the
//     calls that pass by, the answers and the notifications. When it cannot know, it counts too
//     much rather than too little.
//
// Connections whose client has not proved who it is belong to nobody: Arrivals bounds them.
package limits
