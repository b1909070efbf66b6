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
// One goroutine reads requests and, for an engine that decides out of memory, performs them. If the
// engine makes its decisions durable in groups (lockkeeper.GroupCommitter), another goroutine answers
// when the commits have ended. If the engine answers later (lockkeeper.Starter), such a goroutine sends
// what has come. For other engines, and for rare calls, each request has a goroutine.
// At most maxAtWork requests run. Requests that arrive together are answered by one write
// (wire.Conn), and so are decisions that one commit made durable. Locks do not depend on
// connections: when one ends, its sessions live until their TTL, and the client finds its holds over
// another connection.
//
// # Clients
//
// A gate of package access admits clients, by a token in the first frame or by a TLS certificate,
// and gives each connection its view of the engine. When a pass is withdrawn, the server notifies
// the client and ends the connection. The client's sessions live on, for a connection with better
// credentials.
//
// # Bounds
//
// Each connection has bounds for running requests, lists and unread bytes. Package limits bounds
// the total use of each identity, and the unauthenticated connections. The server stops reading
// from a client that does not read, drops its hints before that, and disconnects it after
// writeTime. When hints were dropped, the server notifies the client, which renews: a lease is the
// truth.
package server
