// Package peers carries the messages of a cluster: from node to node over TCP, with mutual TLS.
//
// A [Transport] keeps one outgoing connection to each peer, on which it sends and the peer only shows
// that it lives. So two nodes have two connections, and neither waits for the other:
//
//	node 1                                        node 2
//	Send ─> queue ─> sender ─── messages ───────> receiver ─> Receive
//	                        <── keepalives ─────
//	Receive <─ receiver <────── messages ──────── sender <─ queue <─ Send
//	                    ─────── keepalives ─────>
//
// The messages are those of package replica, which tolerates that any of them is lost. So a queue
// that is full refuses the newest message: the receiver can use an unbroken beginning of the log, and
// nothing without it. While no connection exists or is being made, every message is dropped, since
// it would be out of date by the time of the next connection.
//
// # Identity
//
// A connection is between two certificates of the same authority. [Settings].Identify reads the
// cluster and the id of the node in a certificate; a certificate that it refuses, such as a client's,
// gets no connection. A message is from the node in the certificate, whatever its bytes say. Each side
// also asks [Settings].Allow, which refuses nodes that were expelled. Certificates are read for each
// connection, so renewal needs no restart; a connection outlives the certificates that it began with.
//
// # The protocol
//
// A node calls a peer and both verify the certificates (TLS 1.3, ALPN "lockkeeper-peers"). Then frames
// follow: a length, and that many bytes. Numbers are varints, texts go to the end of the frame.
//
//	caller                                   called node
//	offer: "lk" lowest highest        ─>                    the forms of messages that it knows,
//	       length address                                   and where the caller listens
//	                                  <─    answer: form    the chosen form, or
//	                                  <─    answer: 0 text  a refusal, and the end
//	1 to message                      ─>                    a message of package replica
//	2 to size                         ─>                    a large message of that size begins
//	3 bytes                           ─>                    its next piece
//	nothing (an empty frame)          ─>                    keepalive
//	                                  <─    nothing         keepalive
//
// A node whose address has changed is reached by that offer: the others know it under the former one.
//
// Snapshots, and messages larger than a frame, go in pieces. A piece goes into each write behind all
// other messages that wait, so a heartbeat waits for one piece and for what the kernel has. A large
// message is sent whole before the next one begins.
//
// # Liveness
//
// Each side sends a keepalive six times in [Settings].Silence, and closes a connection on which it has
// received nothing for Silence. So a peer whose process stands still, or that the network cuts off in
// either direction, has no connection after Silence. The caller then connects again: at once if the
// connection lasted for Silence, else after pauses that grow from 50 ms to 2 s, with jitter; at once,
// too, if that peer connects to this node or its address changes. A peer that lives and reads nothing
// loses its connection after 10 times Silence.
//
// # Bounds
//
//	messages that wait for a peer             4096, and 8 MiB; 32 MiB for all peers together
//	a write                                   256 KiB, unless one message is larger, and one piece
//	a message in one frame                    2 MiB
//	large messages being sent                 one a peer; 256 MiB together
//	large messages being received             one a peer; 256 MiB together
//	connections from peers                    one a peer, the latest; from 256 peers
//	unauthenticated connections               64, for 5 s each; see limits.Arrivals
package peers
