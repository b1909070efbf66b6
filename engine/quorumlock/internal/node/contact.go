package node

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// followContact suspends the node when it has had no contact with a leader for an election timeout, or when its
// disk is stuck. It is called once in each tick, by a caller that has locked the view.
func (n *Node) followContact(now time.Duration) {
	if n.replica.Status().Contact {
		n.contactless, n.contactAt = 0, now
	} else {
		n.contactless++
	}
	if (n.contactless >= n.config.Replica.ElectionTicks || n.stuck()) && !n.suspended {
		n.suspended = true
		n.view.Interrupt(replica.Unavailable(n.whySuspended()))
	}
}

// resume ends the suspension, and the outage, if the contact is back. It does so before reads are answered, so
// no watcher that begins with such a read is interrupted. The caller has locked the view.
func (n *Node) resume() {
	if n.suspended && n.replica.Status().Contact && !n.stuck() {
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
	if n.stuck() {
		return errStuck
	}
	return replica.ErrNoLeader
}

var errStuck = errors.New("the disk of this node of the cluster takes no writes")

// stuck reports whether the disk is stuck, see replica.Replica.Stuck. Then this node applies nothing, though a
// leader is in contact with it. If it leads itself, it lets another one lead (changeMembers), and is suspended like
// others if there is none. The caller has locked the view.
func (n *Node) stuck() bool {
	_, stuck := n.replica.Stuck()
	return stuck
}

// Stuck returns for how long the disk has not taken a write, and whether this node can make no calls because of
// that.
func (n *Node) Stuck() (since time.Duration, stuck bool) {
	n.view.Lock()
	defer n.view.Unlock()
	since, stuck = n.replica.Stuck()
	return since, n.suspended && stuck
}

// An outage is one that lasts, or the next one.
type outage struct {
	began chan struct{} // closed when it has begun
	err   error         // that of the calls that it ends; set before began is closed
}

// errOutage marks the ends of calls by an outage.
var errOutage = errors.New("outage")

// endedByOutage is the end of a call by an outage.
type endedByOutage struct {
	why   string
	cause error
}

func (e *endedByOutage) Error() string   { return e.why }
func (e *endedByOutage) Unwrap() []error { return []error{e.cause, errOutage} }

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
		n.outage.Store(&outage{began: now.began, err: &endedByOutage{why, n.whySuspended()}})
	default:
		now.err = &endedByOutage{why, n.whySuspended()}
		close(now.began)
	}
}

// Suspended returns for how long the node has had no contact with a leader, or no room or answer from its disk, and
// whether it is suspended.
func (n *Node) Suspended() (since time.Duration, suspended bool) {
	n.view.Lock()
	defer n.view.Unlock()
	unwritten, _ := n.replica.Stuck()
	return max(n.config.Clock()-n.contactAt, unwritten), n.suspended
}
