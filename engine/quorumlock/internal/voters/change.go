package voters

import (
	"cmp"
	"fmt"
	"slices"
)

// ChangeKind says what a Change does.
type ChangeKind uint8

const (
	// Add makes an id outside a learner.
	Add ChangeKind = iota + 1
	// Promote makes a learner a voter.
	Promote
	// Demote makes a voter a learner.
	Demote
	// Remove takes a learner or a voter out of the configuration, forever: its id is not used again.
	Remove
)

func (k ChangeKind) String() string {
	switch k {
	case Add:
		return "add"
	case Promote:
		return "promote"
	case Demote:
		return "demote"
	case Remove:
		return "remove"
	}
	return fmt.Sprintf("ChangeKind(%d)", uint8(k))
}

// A Change is one change of the configuration. The zero Change is none.
type Change struct {
	Kind ChangeKind
	ID   uint64
}

// Next returns the next change of the configuration; false if there is none. members are as the
// leader sees them, and leader is its id. The caller must not call Next while a change is in the log
// and not yet applied, nor before it has applied an entry of its own term: otherwise two changes
// could meet whose majorities do not.
func Next(p Policy, members []Member, leader uint64) (Change, bool) {
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		return cmp.Or(a.compare(&b.Node), cmp.Compare(a.ID, b.ID))
	})
	chosen := Choose(p, members, leader)
	for _, c := range wanted(members, chosen, leader) {
		if keepsMajority(members, c) {
			return c, true
		}
	}
	return Change{}, false
}

// wanted lists the changes that lead to the chosen voters, most urgent first.
func wanted(members, chosen []Member, leader uint64) (changes []Change) {
	add := func(kind ChangeKind, which func(m *Member) bool) {
		for i := range members {
			m := &members[i]
			if kind == Demote { // the worst goes first
				m = &members[len(members)-1-i]
			}
			if which(m) && (kind != Demote && kind != Remove || m.ID != leader) {
				changes = append(changes, Change{kind, m.ID})
			}
		}
	}
	isChosen := func(m *Member) bool {
		return slices.ContainsFunc(chosen, func(c Member) bool { return c.ID == m.ID })
	}
	allVote := !slices.ContainsFunc(chosen, func(m Member) bool { return m.Role != Voter })

	add(Remove, func(m *Member) bool { return m.Retired && m.Role != Outside })
	add(Add, func(m *Member) bool { return m.Role == Outside && m.Silent == 0 && !m.Retired })
	add(Promote, func(m *Member) bool { return m.Role == Learner && isChosen(m) && m.healthy() })
	if allVote && len(chosen) > 0 {
		add(Demote, func(m *Member) bool { return m.Role == Voter && !m.Retired && !isChosen(m) })
	}
	return changes
}

// keepsMajority reports whether a majority of the voters after c is reachable and caught up. A
// change of learners alone is always possible.
func keepsMajority(members []Member, c Change) bool {
	voters, healthy := 0, 0
	for i := range members {
		m := &members[i]
		votes := m.Role == Voter
		if m.ID == c.ID {
			if c.Kind == Add || c.Kind == Remove && !votes {
				return true
			}
			votes = c.Kind == Promote
		}
		if votes {
			voters++
			if m.healthy() {
				healthy++
			}
		}
	}
	return healthy > voters/2
}
