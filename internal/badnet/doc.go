// Package badnet makes networks fail, for tests.
//
// # A proxy with faults
//
// A [Proxy] stands between TCP clients and a server. It delays, stalls, cuts and discards data, sends
// it byte by byte, and delivers what clients sent twice, late or again:
//
//	client ──up──> connection (Profile) ──up──> server
//	client <─down─ connection (Profile) <─down─ server
//
// A [Profile] is the current behaviour of a connection; [Proxy.Set] sets it for all connections.
// [Proxy.Start] runs a [Schedule], which changes the profile of each connection at random, and
// [Proxy.Heal] ends all faults. The seed fixes the faults of the n-th connection.
//
// Duplicates, late frames and replays need whole messages. So in the direction to the server the proxy
// expects frames: a length (a uvarint) and that many bytes. The first frame of a connection is its
// handshake, without which the server ignores the others; a replay repeats it. [NewFrameless] is for
// other protocols.
//
// # A host that loses packets
//
// On Linux a Host is a network namespace, and a Cable is its link to this process. A Cable can lose
// packets silently, in one direction or both, or report its failure (Unplug).
package badnet
