package voters

import (
	"cmp"
	"slices"
)

// The standings of members that may vote, best first.
const (
	standingLeader = iota // the leader
	standingVoter         // a voter that is not lost
	standingJoined        // a learner that is not lost
	standingReady         // a node outside that answers
	standingLost          // a voter that is lost, and not retired
	standingNone          // all others: they can't be chosen
)

func (p Policy) standing(m *Member, leader uint64) int {
	lost := p.lost(m)
	switch {
	case m.Rank >= Off || m.Retired:
		return standingNone
	case m.ID == leader:
		return standingLeader
	case m.Role == Voter && !lost:
		return standingVoter
	case m.Role == Learner && !lost:
		return standingJoined
	case m.Role == Outside && m.Silent == 0:
		return standingReady
	case m.Role == Voter:
		return standingLost
	}
	return standingNone
}

// Choose returns the members that should vote, best first: p.Voters of them, or with fewer members
// the largest odd number; none if no member may vote. leader is the id of the leader. For the voters
// of a new cluster, all members are outside and leader is 0. The order of members does not matter.
func Choose(p Policy, members []Member, leader uint64) []Member {
	var eligible []Member
	for i := range members {
		if p.standing(&members[i], leader) != standingNone {
			eligible = append(eligible, members[i])
		}
	}
	slices.SortFunc(eligible, func(a, b Member) int {
		return cmp.Or(cmp.Compare(p.standing(&a, leader), p.standing(&b, leader)), a.compare(&b.Node),
			cmp.Compare(a.ID, b.ID))
	})
	n := min(p.Voters, len(eligible))
	if n > 0 && n%2 == 0 {
		n--
	}
	return eligible[:n]
}

// Yield returns the voter to which the leader should transfer its leadership; false if it should go
// on. leader is the id of the leader.
func Yield(members []Member, leader uint64) (to Member, yields bool) {
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == leader })
	if at < 0 || members[at].Rank == Leads {
		return Member{}, false
	}
	var best *Member
	for i := range members {
		m := &members[i]
		fits := m.Rank == Leads || members[at].Rank >= Off && m.Rank < Off
		if i != at && m.Role == Voter && m.healthy() && fits && (best == nil || m.compare(&best.Node) < 0) {
			best = m
		}
	}
	if best == nil {
		return Member{}, false
	}
	return *best, true
}
