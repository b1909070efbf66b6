package node

import (
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

// resume ends the suspension if the contact is back. It does so before reads are answered, so no watcher
// that begins with such a read is interrupted. The caller has locked the view.
func (n *Node) resume() {
	if n.suspended && n.replica.Status().Contact {
		n.suspended = false
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

// Suspended returns for how long the node has had no contact with a leader, if it is suspended.
func (n *Node) Suspended() (since time.Duration, suspended bool) {
	n.view.Lock()
	defer n.view.Unlock()
	return n.config.Clock() - n.contactAt, n.suspended
}
