package node

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// followContact suspends the node when it has had no contact with a leader for an election timeout.
// It is called once in each tick, by a caller that has locked the view.
func (n *Node) followContact(now time.Duration) {
	if n.replica.Status().Contact {
		n.contactless, n.contactAt = 0, now
		return
	}
	n.contactless++
	if n.contactless >= n.config.Replica.ElectionTicks && !n.suspended {
		n.suspended = true
		n.view.Interrupt(replica.Unavailable(n.whySuspended()))
	}
}

// resume ends the suspension, and the outage, if the contact is back. It does so before reads are answered, so
// no watcher that begins with such a read is interrupted. The caller has locked the view.
func (n *Node) resume() {
	if n.suspended && n.replica.Status().Contact {
		n.suspended = false
		n.stateOutage("")
		n.view.Interrupt(replica.Unavailable(replica.ErrNoLeader))
	}
}

// whySuspended returns why a suspended node can make no calls. The caller has locked the view.
func (n *Node) whySuspended() error {
	if err := n.replica.Status().Failed; err != nil {
		return err
	}
	return replica.ErrNoLeader
}

// An outage is one that lasts, or the next one.
type outage struct {
	began chan struct{} // closed when it has begun
	err   error         // that of the calls that it ends; set before began is closed
}

// errOutage marks the ends of calls by an outage.
var errOutage = errors.New("outage")

// endedByOutage is the end of a call by an outage.
type endedByOutage struct{ why string }

func (e *endedByOutage) Error() string   { return e.why }
func (e *endedByOutage) Unwrap() []error { return []error{replica.ErrNoLeader, errOutage} }

// StateOutage states that no end of the suspension can be expected soon, and why; "" takes that back, and so
// does the end of the suspension. It ends the calls and reads whose callers have no time for an outage
// (roundtrip.EndInOutage). It does nothing if the suspension has ended meanwhile.
func (n *Node) StateOutage(why string) {
	n.view.Lock()
	defer n.view.Unlock()
	if n.suspended {
		n.stateOutage(why)
	}
}

// stateOutage is called with the view locked.
func (n *Node) stateOutage(why string) {
	now := n.outage.Load()
	lasts := now.err != nil
	switch {
	case why == "" && lasts:
		n.outage.Store(&outage{began: make(chan struct{})})
	case why == "" || lasts && now.err.Error() == why:
	case lasts:
		n.outage.Store(&outage{began: now.began, err: &endedByOutage{why}})
	default:
		now.err = &endedByOutage{why}
		close(now.began)
	}
}

// Suspended returns for how long the node has had no contact with a leader, if it is suspended.
func (n *Node) Suspended() (since time.Duration, suspended bool) {
	n.view.Lock()
	defer n.view.Unlock()
	return n.config.Clock() - n.contactAt, n.suspended
}
