// Package wire is the protocol between clients and servers, lk:// and lks://: its messages, the
// frames and connections that carry them, and their conversion to the values of package
// lockkeeper. This page specifies the protocol; lockkeeper.proto has the fields.
//
// Code written by hand turns the values of frequent messages into bytes and back: claim, end, attach,
// renew, ping, flow; status, lease, error, hint. Code generated from lockkeeper.proto does the rest.
// It is also the oracle of the tests, which hold the bytes and values of the former against it, and
// speaks for the clients in tests of the server, as code generated for another language would.
//
// # Frames
//
// A connection is a TCP stream, inside TLS for lks://. Each side sends frames: a base-128 varint,
// then a message of that many bytes. A client sends ClientFrames, a server ServerFrames. A frame
// has any number of requests, replies and hints; frames only pack messages into writes, and have
// no meaning of their own.
//
// # Messages
//
//	client                             server
//	Hello(protocol, token)        →                       first frame
//	                              ←    Welcome(guarantees, cluster), or Refused(error) and the end
//	Request(call, session, …)     →
//	  attach Session              ←    Reply(call, Lease…)
//	  renew                       ←    Reply(call, Lease…)
//	  claim Want                  ←    Reply(call, Status)
//	  end Ending                  ←    Reply(call)
//	  list Query                  ←    Reply(call, Status, more)… Reply(call)
//	  about, drain Drain          ←    Reply(call, About)
//	  ping                        ←    Reply(call)
//	Flow(call, credit or stop)    →                       steers a list; no reply
//	                              ←    Changed(Status)    hint: a claim changed
//	                              ←    Missed             hints were dropped
//	                              ←    Draining(reason)   no new claims from now on; also beside Welcome
//	                              ←    Cluster(addresses) the nodes of the server's cluster changed
//	                              ←    Refused(error)     the server ends the connection
//
// The methods are those of lockkeeper.Engine, and their messages are its arguments: Session, Key,
// Want, Ending, Query; Lease, Status, Error. Any Reply may have an Error in place of its result.
// A large lease comes in several replies, all but the last marked more. A list sends as many
// statuses as its query and its flows gave credit for, marked more, and ends with a reply without
// more, unless the client stops it.
//
// A claim that waits is answered at once, with the state waiting. Its grant, its end or an ask is
// a Changed to the connection from which the session was attached or renewed last.
//
// # References
//
// A call is named by its number, which the client chooses: not 0, and not that of a list that is
// still open. The server only repeats it. The client of engine/remote composes it of a slot, in
// the low 20 bits, and the slot's generation above them. So a reply leads to its call without a
// search, and a late reply to a former call of the slot finds nothing.
//
// A session is named by its Key (id and epoch), or by a handle: a slot in the low 8 bits, and the
// slot's generation, from 1, above them. A request with a handle and a Key binds the handle to the
// Key, from this request on; a request with a handle alone acts under the Key bound to it; a
// request with a Key alone binds nothing. The generation of a slot rises with each new binding. A
// client with more than 256 sessions binds slots again. Handles are the client's to choose, hold
// for one connection, and give no rights: the engine checks the Key at each call.
//
// A claim is named by its session and its id, which the session never uses again. Hints name the
// session by its handle if it has one, else by its id. A client that receives a hint with a handle
// of a former generation treats it as Missed. The answers to attach, renew and claim are about the
// request's session, and do not name it. The answer to a claim whose label, inside, revision,
// priority and targets are those of the request leaves them out and says as_asked.
//
// A request states the session's lowest open id (no claim with a lower id begins any more, R16)
// and the latest lease that the client has processed (R12). The highest statement of an epoch
// counts.
//
// # Order
//
//   - A server reads requests in the order in which they were sent, and binds handles in that
//     order. It handles the flows of a frame after the requests of that frame. It performs the
//     requests that come before an invalid one.
//   - Requests are performed and answered in any order. A client that needs an order waits for
//     the answer. The replies to one call come in their order.
//   - Hints are unordered: late, doubled, before the answer to the claim, or missing. Of two
//     statuses of a claim, the one with the higher change is true. A lease is the truth.
//   - A server may delay any answer or hint to share a write, and answers and hints to one client
//     never wait for another client.
//   - A client ignores what follows Refused.
//
// # Reconnection
//
// Locks do not depend on connections: sessions live by their leases. When a connection ends, the
// outcome of every open call is unknown, and repeating it with the same ids is safe (R16). The
// client forgets all call numbers and handles, processes what the former connection still
// brought, connects again, binds new handles as it needs them, and renews its sessions: hints may
// have been lost. A renewal at another server of the same engine, or after a restart, is refused
// with CODE_SESSION; the client then attaches again with the epoch that it knows.
//
// A node of a cluster states the cluster's id and the addresses of all nodes. Any of them keeps the
// same sessions and claims, so the client may connect to another one. It never uses a server that
// states another id, or none. While a node states that it is suspended, its calls wait.
//
// Requests of an ended connection may arrive after those of its successor. They do no harm: ids
// make claims unique, epochs refuse former owners, lowest open ids refuse late claims, and a
// renewal moves hints to its connection only until that connection ends.
//
// # Bounds
//
//	first ClientFrame                           4 KiB
//	any other frame                             1 MiB
//	requests, flows, targets, lapses a frame    16,384
//	session id                                  128 bytes
//	handles of a connection                     256
//	requests that an engine works on            1,024 a connection; then the server reads no more
//	open lists                                  64 a connection
//	Cluster                                     64 addresses of at most 272 bytes
//	unread bytes, beyond a share of all         1 MiB a connection; then hints are dropped, and
//	                                            requests wait; after 30 s the connection ends
//	handshake, and an incomplete large frame    10 s
//
// A server ends a connection that breaks the protocol: an invalid or too large frame, a request with
// two methods, call number 0, an unbound handle, a generation that does not rise, two open lists of
// one number. Everything else that is wrong with a request is its answer. A number that Go's types
// can't hold becomes one that the checks of package lockkeeper refuse.
package wire
