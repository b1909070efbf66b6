// Package server exports an engine over the network, by the protocol that package wire specifies.
//
// # Connections
//
// A connection carries any number of sessions and calls:
//
//	accepted ── TLS, Hello, gate ──→ welcomed ── end of stream, error, Shutdown,   ──→ finishing ──→ closed
//	   │                                         pass withdrawn, protocol broken        answers the
//	   └─── Refused: bad credentials, ───→ closed                                       calls it has
//	        another protocol, too late
//
// One goroutine reads requests and, for an engine that answers out of memory, performs them; for
// other engines each request has a goroutine, up to maxAtWork. Requests that arrive together are
// answered by one write (wire.Conn). Locks do not depend on connections: when one ends, its
// sessions live until their TTL, and the client finds its holds over another connection.
//
// # Clients
//
// A gate of package access admits clients, by a token in the first frame or by a TLS certificate,
// and gives each connection its view of the engine. When a pass is withdrawn, the server says so and
// ends the connection. The client's sessions live on, for a connection with better credentials.
//
// # Bounds
//
// Each connection has bounds of running requests, lists and unread bytes; package limits bounds
// what one identity uses in all, and the connections that have not yet authenticated. The server
// stops reading from a client that does not read, drops its hints before that, and disconnects it
// after writeTime. A client whose hints were dropped is told to renew, and a lease is the truth.
package server
