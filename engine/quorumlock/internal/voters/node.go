package voters

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A Rank says how much a node should vote and lead: 0 to 15, or Off.
type Rank uint8

const (
	// Leads is the rank of a node that should vote, and lead whenever it can.
	Leads Rank = 0
	// RatherNot is the lowest rank of a node that votes: only if there are too few others.
	RatherNot Rank = 15
	// Off is the rank of a node that never votes.
	Off Rank = 16
)

// ParseRank reads a rank as people write it: a number from 0 to 15, or "off".
func ParseRank(text string) (Rank, error) {
	if text == "off" {
		return Off, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n > uint64(RatherNot) || strings.HasPrefix(text, "0") && text != "0" {
		return 0, fmt.Errorf("rank %q: write 0 (leads whenever it can) to 15 (votes only if there are too few others), "+
			"or off (never votes)", text)
	}
	return Rank(n), nil
}

func (r Rank) String() string {
	if r >= Off {
		return "off"
	}
	return strconv.Itoa(int(r))
}

// A Node is what the choice of voters depends on and what does not change while the node runs.
type Node struct {
	Name    string // unique in the cluster; it stays if the node loses its disk
	Rank    Rank
	Random  uint32         // drawn once per node: so that voters are not always those with the lowest addresses
	Address netip.AddrPort // where other nodes reach it
}

// ExpelledPrefix begins the keys of the settings that bar ids forever.
const ExpelledPrefix = "expelled/"

// ExpelledKey returns the key of the setting that bars an id. No id that votes can have it, and no id that has it
// gets a vote.
func ExpelledKey(id uint64) string { return fmt.Sprintf("%s%016x", ExpelledPrefix, id) }

// compare puts nodes in the order of rank, random number, address and name. Addresses compare as
// IPv6 addresses, byte by byte.
func (n *Node) compare(other *Node) int {
	mine, others := n.Address.Addr().As16(), other.Address.Addr().As16()
	return cmp.Or(
		cmp.Compare(n.Rank, other.Rank),
		cmp.Compare(n.Random, other.Random),
		bytes.Compare(mine[:], others[:]),
		cmp.Compare(n.Address.Port(), other.Address.Port()),
		strings.Compare(n.Name, other.Name),
	)
}

// A Role is the part that an id has in the configuration of the log.
type Role uint8

const (
	// Outside: the id is not in the configuration.
	Outside Role = iota
	// Learner: the id receives the log, and does not vote.
	Learner
	// Voter: the id receives the log, and votes.
	Voter
)

// A Member is a node under one id, as the leader sees it.
type Member struct {
	Node
	// ID is the id in the configuration. A node that has lost its disk gets a new one. Ids are never
	// used again, so two members may have one name, and never one id.
	ID   uint64
	Role Role

	// Silent is for how long the leader has received nothing from it; 0 if it answers.
	Silent time.Duration
	// CaughtUp: it has stored nearly all of the leader's log. The leader itself always has.
	CaughtUp bool
	// Retired: its node runs under another id. It counts as lost from then on.
	Retired bool
}

// A Policy says how many voters there should be, and when one is lost.
type Policy struct {
	Voters int           // 1, 3 or 5
	Grace  time.Duration // a voter that is silent for longer is lost, and replaced if a node is there
}

// DefaultVoters is the number of voters of a cluster whose operator sets none.
const DefaultVoters = 3

// Check returns an error that says what would be right; nil if p is valid.
func (p Policy) Check() error {
	switch {
	case p.Voters != 1 && p.Voters != 3 && p.Voters != 5:
		return fmt.Errorf("%d voters: a cluster has 1, 3 or 5", p.Voters)
	case p.Grace <= 0:
		return fmt.Errorf("grace %s: a lost voter is replaced after a time above 0", p.Grace)
	}
	return nil
}

// lost reports whether m does not come back, as far as p says.
func (p Policy) lost(m *Member) bool { return m.Retired || m.Silent > p.Grace }

// healthy reports whether m could vote for the next entry at once.
func (m *Member) healthy() bool { return m.Silent == 0 && !m.Retired && m.CaughtUp }
