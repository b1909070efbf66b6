// Package server exports an engine to other computers, over TCP, as package wire
// describes it.
//
// A connection carries any number of sessions and claims. What arrives together is
// applied together, and answered by one write. Nothing about locks depends on a
// connection: when it ends, sessions live on until their TTL, and a client that
// comes back on another one finds its holds and its places in line.
//
// A gate of package access decides who is let in, by a token in the first frame or by
// a certificate of TLS, and each connection works with the engine that the gate gives
// it. When it is withdrawn, the client is told and the connection ends; its sessions
// live on, and a client with better credentials finds them.
//
// Each connection has its own bounds: of requests at work, of lists, of bytes that
// the client has not read yet. Whoever does not read is not read either, and is cut
// off after a while. What was only a hint is dropped before that; the client is
// told to renew, which brings the truth. Connections that have not said who they are
// have few places, and one identity has a part of the server only.
package server
