package server

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// An answer is what a call came to: the error; else the lease, the state of the server, the status of
// a claim, or nothing but that it was performed.
type answer struct {
	call  uint64
	err   error
	lease *lockkeeper.Lease
	about *lockkeeper.ServerState

	// Of a claim.
	want    *lockkeeper.Want // nil: no claim
	session string
	status  lockkeeper.Status
}

// reply sends an answer, a lease with many claims in pieces. While the client has too much unread,
// reply waits: a client that does not read gets no answers.
func (c *conn) reply(a *answer) {
	if !c.mayHave(a) || c.Begin(context.Background()) != nil { // that ends with the connection
		return
	}
	if a.isLease() {
		c.putLease(a)
		return
	}
	c.put(a)
	c.End(false)
}

// mayHave reports whether the client may get an answer. It gets no refusals once its pass is
// withdrawn: it repeats its request over another connection, with new credentials.
func (c *conn) mayHave(a *answer) bool {
	return !errors.Is(a.err, lockkeeper.ErrDenied) || !c.withdrawn()
}

// isLease reports whether the answer is a lease, which may have several pieces.
func (a *answer) isLease() bool { return a.err == nil && a.lease != nil }

// put adds an answer that is no lease to the outbox. The lock is held.
func (c *conn) put(a *answer) {
	switch {
	case a.err != nil:
		c.Out.PutError(a.call, a.err)
	case a.about != nil:
		c.Out.PutReply(&wire.Reply{Call: a.call, About: wire.NewAbout(a.about)})
	case a.want != nil:
		c.Out.PutStatus(a.call, &a.status, a.session, a.want)
	default:
		c.Out.PutDone(a.call)
	}
}

// putLease sends all pieces of a lease, even to a client whose pass is withdrawn: each may state the
// end of a hold (R12). The lock is held; putLease unlocks it.
func (c *conn) putLease(a *answer) {
	for rest := *a.lease; ; {
		rest.Claims = c.Out.PutLease(a.call, &rest)
		c.End(false)
		if len(rest.Claims) == 0 || c.Begin(context.Background()) != nil {
			return
		}
	}
}

// takeUnsent charges the identity for bytes that the client has not read, in steps of ownUnsent
// beyond the first, and takes the charge back once the client has read enough. It reports whether
// more may be sent. The lock is held.
func (c *conn) takeUnsent(unsent int) bool {
	if c.unsent > 0 && unsent <= ownUnsent {
		c.usage.Give(limits.Unsent, c.unsent)
		c.unsent = 0
	}
	for unsent > ownUnsent+c.unsent {
		if unsent > maxUnsent || c.usage.Take(limits.Unsent, ownUnsent) != nil {
			return false
		}
		c.unsent += ownUnsent
	}
	return true
}

// withdrawn reports whether the client's pass is withdrawn. Then a refusal is no answer: the client
// repeats the call with a new token.
func (c *conn) withdrawn() bool { return c.pass != nil && c.pass.Withdrawn() }

// post sends a frame of its own, such as the welcome. It does not wait.
func (c *conn) post(m *wire.ServerFrame) {
	c.Lock()
	c.Out.PutFrame(m)
	c.End(false)
}

// notify sends hints, or drops them while the client has too much unread. It does not wait. A server
// that is about to end reports no grants, and a client whose pass is withdrawn gets no hints, so that
// the writing goroutine comes to an end.
func (c *conn) notify(statuses []lockkeeper.Status, ending bool) {
	if c.withdrawn() {
		return
	}
	c.Lock()
	for i := range statuses {
		if ending && statuses[i].State == lockkeeper.Held {
			continue
		}
		if c.missed || !c.HasRoom() {
			c.missed = true
			break
		}
		c.Out.PutHint(&statuses[i], c.bindings.of(statuses[i].Ref.Session))
	}
	c.End(false)
}

// miss notifies the client that it may have missed hints. It does not wait.
func (c *conn) miss() {
	c.Lock()
	c.missed = true
	c.Unlock()
	c.Signal()
}

// reportNews adds what the client has to know before the next write. The lock is held.
func (c *conn) reportNews() {
	c.reportMissed()
	c.reportNodes()
}

// reportMissed notifies the client of dropped hints as soon as there is room. The lock is held.
func (c *conn) reportMissed() {
	if c.missed && c.HasRoom() {
		c.missed = false
		c.Out.PutFrame(&wire.ServerFrame{Missed: true})
	}
}

// write is the writing goroutine. It ends when every answer is sent, or none can be. When the
// client's pass is withdrawn, it says so and stops the reader.
func (c *conn) write() {
	withdrawn := c.gone
	for {
		select {
		case <-c.Wake():
			c.Flush()
		case <-withdrawn:
			withdrawn = nil
			c.server.logger.Info("a pass is withdrawn, and its connection ended", "from", c.net.RemoteAddr(), "identity",
				c.identity)
			c.post(&wire.ServerFrame{Refused: wire.NewError(errWithdrawn)})
			c.finish()
		}
		c.Lock()
		answered := c.answered
		c.Unlock()
		if answered && c.Sent() {
			return
		}
	}
}

var errWithdrawn = &lockkeeper.Error{
	Err: lockkeeper.ErrDenied,
	Detail: "the token or certificate of this client has expired or was withdrawn: its locks stay until their " +
		"sessions' TTL ends",
}
