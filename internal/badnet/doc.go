// Package badnet makes networks bad, for tests of what has to stand them.
//
// A [Proxy] stands between TCP clients and a server. It delays, stalls, cuts,
// swallows, drips single bytes, and delivers to the server twice, late, or again
// what clients once sent. For the last three it knows frames: in the direction
// from client to server everything is a length (a uvarint) and so many bytes, and
// the first frame of a connection is its greeting, without which the server would
// not listen to the others.
//
// What it does is decided by [Weather] and a seed, connection by connection, so
// that the same seed has the same faults in store for the n-th connection; or by
// the test itself, with [Proxy.Set] and its like.
//
// On Linux a Host is another computer, made of a network namespace, at the end of
// a Cable on which packets are lost without anybody being told.
package badnet
