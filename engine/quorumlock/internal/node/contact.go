package node

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
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
		n.view.Interrupt(unavailable(n.whySuspended()))
	}
}

// resume ends the suspension if the contact is back. It does so before reads are answered, so no watcher
// that begins with such a read is interrupted. The caller has locked the view.
func (n *Node) resume() {
	if n.suspended && n.replica.Status().Contact {
		n.suspended = false
		n.view.Interrupt(unavailable(replica.ErrNoLeader))
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

// changeMembers makes the next change of the configuration, or transfers the leadership, if this node
// leads. A refused change is decided again later. The caller has locked the view.
func (n *Node) changeMembers(now time.Duration) {
	peers := n.replica.Peers()
	if n.config.Members == nil || len(peers) == 0 {
		return
	}
	policy, members, err := n.config.Members(n.replica)
	if err != nil {
		return
	}
	members = merge(members, peers)
	id := n.config.Replica.ID
	if change, wanted := voters.Next(policy, members, id); wanted {
		_ = n.replica.Change(now, change)
	} else if to, yields := voters.Yield(members, id); yields {
		n.replica.Transfer(now, to.ID)
	}
}

// merge adds to members what the leader sees of its peers. A peer that is not among members stays
// what it is: it has the lowest rank that votes.
func merge(members []voters.Member, peers []replica.Peer) []voters.Member {
	merged := slices.Clone(members)
	for _, p := range peers {
		i := slices.IndexFunc(merged, func(m voters.Member) bool { return m.ID == p.ID })
		if i < 0 {
			i = len(merged)
			merged = append(merged, voters.Member{ID: p.ID, Node: voters.Node{Rank: voters.RatherNot}})
		}
		merged[i].Role, merged[i].Silent, merged[i].CaughtUp = p.Role, p.Silent, p.CaughtUp
	}
	return merged
}
