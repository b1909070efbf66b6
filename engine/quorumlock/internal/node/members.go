package node

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// changeMembers makes the next change of the configuration, or transfers the leadership, if this node
// leads. A refused change is decided again later. The caller has locked the view.
func (n *Node) changeMembers(now time.Duration) {
	policy, members, known := n.members()
	if !known {
		return
	}
	if n.stuck() { // it can write no change, and answers nobody
		n.replica.Transfer(now, n.nextHeir(members))
		return
	}
	n.triedHeirs = nil
	if !n.replica.Status().Ready { // it may not know the latest wishes
		return
	}
	if change, wanted := voters.Next(policy, members, n.config.Replica.ID); wanted {
		_ = n.replica.Change(now, change)
	} else if to := n.successor(members); to != 0 {
		n.replica.Transfer(now, to)
	}
}

// nextHeir returns the best heir to which this node has not tried to transfer its leadership since its disk is
// stuck; the best of all again if it has tried all; 0 if there is none. The disk of an heir may be stuck, too. The
// caller has locked the view.
func (n *Node) nextHeir(members []voters.Member) uint64 {
	isTried := func(m voters.Member) bool { return slices.Contains(n.triedHeirs, m.ID) }
	to := n.heir(slices.DeleteFunc(slices.Clone(members), isTried))
	if to == 0 {
		n.triedHeirs = nil
		to = n.heir(members)
	}
	if to != 0 {
		n.triedHeirs = append(n.triedHeirs, to)
	}
	return to
}

// members returns the members as this node sees them; false if it does not lead. The caller has locked
// the view.
func (n *Node) members() (p voters.Policy, all []voters.Member, known bool) {
	peers := n.replica.Peers()
	if n.config.Members == nil || len(peers) == 0 {
		return p, nil, false
	}
	p, all, err := n.config.Members(n.replica)
	return p, merge(all, peers), err == nil
}

// successor returns the id to which the leader should transfer its leadership; 0 or its own if it
// should go on. The caller has locked the view.
func (n *Node) successor(members []voters.Member) uint64 {
	if n.config.Wished != nil {
		to := n.config.Wished(n.replica)
		if slices.ContainsFunc(members, func(m voters.Member) bool { return m.ID == to && mayLead(&m) }) {
			return to
		}
	}
	to, _ := voters.Yield(members, n.config.Replica.ID)
	return to.ID
}

// mayLead reports whether a leader may transfer its leadership to m.
func mayLead(m *voters.Member) bool {
	return m.Role == voters.Voter && m.Silent == 0 && m.CaughtUp && m.Rank < voters.Off && !m.Retired
}

// Successor returns the voter that can lead best if this node, which leads, goes away; 0 if there is
// none.
func (n *Node) Successor() (id uint64, leads bool) {
	n.view.Lock()
	defer n.view.Unlock()
	_, members, leads := n.members()
	return n.heir(members), leads
}

// heir returns the voter among members that can lead best in place of this node; 0 if there is none.
func (n *Node) heir(members []voters.Member) uint64 {
	for i := range members {
		if members[i].ID == n.config.Replica.ID {
			members[i].Rank = voters.Off
		}
	}
	to, _ := voters.Yield(members, n.config.Replica.ID)
	return to.ID
}

// Transfer lets another voter lead, as [replica.Replica.Transfer] does.
func (n *Node) Transfer(to uint64) {
	n.input(func(now time.Duration) { n.replica.Transfer(now, to) })
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
