// Package remote is the engine of a server: lk://host:7420, or lks://host:7420 over TLS. Package
// wire specifies the protocol.
//
// # Connection
//
// All calls of an Engine share one connection. A call opens it if there is none:
//
//	       call                welcome
//	none ────────→ connecting ─────────→ open
//	  ↑                │                   │ read or write error, Refused, silence,
//	  │  no address    │                   │ Draining or Suspended while another address is neither
//	  ├────────────────┘                   ↓
//	  └───────────────────────────────── failed
//	    the last frame of the connection is processed
//
// Connecting dials the addresses in their order: each when all before have failed, or a pause after
// the last dial, and each for at most dialTime. The first server that answers counts, but one that drains
// or is suspended only if no other answers.
// Callers that need a connection meanwhile share the attempt. If no address works, they get
// ErrUnavailable, or ErrDenied if a server refused the client. A refusal is an answer, so the
// Client does not retry it forever.
//
// # Cluster
//
// A node of a cluster states the addresses of all nodes, in its welcome and when they change. From
// then on the client uses them beside those of its URL. After the loss of a connection it goes to
// another node at once, then tries the lost one again, then the others in random order. There the
// Client attaches its sessions again (R19). Claims, positions and fences are those of the cluster,
// so nothing else changes, and a call whose answer was lost is repeated by its id (R16).
//
// Any node performs any call, because it passes calls on to the one that leads. So a client does not
// look for the leader. A node without one says that it is suspended. Then the client leaves it, as
// one that drains, if there is a node that it has not left within avoidTime. If all are suspended,
// its calls wait where it is, until their own bounds.
//
// The id of the cluster decides whether a server is one of its nodes. At an address that leads to
// another server, a client would find its sessions ended and its locks free. It therefore refuses
// such a server before the first call.
//
// # Loss of a connection
//
// When a connection fails, its open calls and lists end with ErrUnavailable (but a list without a status
// yet is asked for again, if the client itself moves to another server), and all sessions are
// notified that hints may be missing, so that they renew over the next connection. The engine uses
// the next connection only after it has processed all frames of the failed one, so a hint from a
// former run of the server never overtakes an answer from the next run. Nothing else is lost:
// sessions live by their leases.
//
// # Silence
//
// A connection fails if the server is silent:
//
//	a call is open for silence/2 to silence, and no frame came             → failed
//	a call reaches its deadline after 250 ms or more, and no frame came    → failed
//	only lists are open, and no frame came for silence/2                   → Ping, which is a call
//	a write takes longer than writeTime                                    → failed
//
// # Reading
//
// Each connection has a goroutine that reads it, the receiver. It has to wake the caller that it
// has an answer for. So while a single goroutine makes one call after the other, the receiver steps
// aside, and each caller reads its own answer:
//
//	                     calls are brisk, none is open, and nothing else is expected
//	receiver reads ──────────────────────────────────────────────────────────────→ nobody reads
//	  ↑  ↑                                                                      call │  ↑
//	  │  │  answered, but calls are not brisk any more, or others are open           │  │ answered
//	  │  │  its context or client ends, or it is due (its read is interrupted)       │  │
//	  │  │  a frame has a hint or anything else but answers, or the stream ends      ↓  │
//	  │  └────────────────────────────────────────────────────────────────────── caller reads
//	  │
//	  └── nobody reads, and: no call within briskGap; a list begins; the connection fails
//
// Calls are brisk if the last briskCalls followed each other within briskGap, none while another
// was open. Something else is expected while a list is open, a claim waits, or a part of a frame
// has arrived. So the receiver takes part in every hand-over of a lock, and a hint that nobody
// waits for, or the end of the connection, is noticed at once during a call, and up to 2*briskGap
// after one.
//
// A caller only delivers answers, also those of others. It hands every other frame, and errors, to
// the receiver, which alone calls notify and ends connections. Reading goes on where an interrupted
// read stopped, so a caller that leaves loses no byte of a frame.
//
// # Writing
//
// While few calls are open, a caller writes its request itself, as the receiver would have to wake the
// writing goroutine for it. But the callers that a frame with many answers has woken leave their
// requests to that goroutine, which sends them by one write.
//
// # Ends of calls
//
// The calls of a Client have no timers of their own (package roundtrip). One timer for each
// connection ends the calls that are due. Nor does each caller wait for its context if the calls of
// the connection usually have the same one: the connection watches that, and ends the open calls that
// have it.
//
// A call whose caller gives up goes on for the grace of that caller, if it has one: the connection
// then makes it due at the end of the grace. An answer in that time says for certain what became of
// it.
//
// # Credentials
//
// A client shows a token or a certificate, if it has one, and accepts a server whose certificate it
// can verify. It reads their files for each connection, so they may be replaced at any time.
package remote
