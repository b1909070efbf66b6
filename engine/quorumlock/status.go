package quorumlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A State says whether a node can answer calls.
//
//	starting ──> ready <──> no quorum            stopped: for good, until the process starts again
type State string

// The states of a node.
const (
	// StateStarting: the node has had no contact with a leader since it was opened.
	StateStarting State = "starting"
	// StateReady: a leader and this node are in contact, so calls are answered.
	StateReady State = "ready"
	// StateNoQuorum: no leader is in contact with this node. Calls wait, and locks are neither granted
	// nor lost by that.
	StateNoQuorum State = "no quorum"
	// StateStopped: the node has found its disk or its state damaged, or needs another version of the
	// program; see ClusterStatus.Failed.
	StateStopped State = "stopped"
)

// A ClusterStatus is the cluster as one node knows it.
type ClusterStatus struct {
	Cluster string        `json:"cluster"` // its id
	Node    string        `json:"node"`    // the name of the node that says so
	State   State         `json:"state"`   // of that node
	Since   time.Duration `json:"since"`   // for how long there has been no quorum
	Failed  string        `json:"failed,omitempty"`
	Leader  string        `json:"leader,omitempty"` // "": none that the node knows
	Term    uint64        `json:"term"`             // rises with every election
	Applied uint64        `json:"applied"`          // the number of the latest change of the log that the node has
	Rules   uint64        `json:"rules"`            // the version of the rules that the cluster runs under

	Voters   int `json:"voters"`   // how many nodes should vote, if there are enough
	Majority int `json:"majority"` // how many of the present voters have to live
	Live     int `json:"live"`     // present voters that the node reaches, itself included

	Nodes  []NodeStatus `json:"nodes"` // by name
	Alarms []string     `json:"alarms,omitempty"`
}

// A NodeStatus is one member of the cluster.
type NodeStatus struct {
	Name    string `json:"name"`
	ID      string `json:"id"`      // 16 hexadecimal digits; another one after the loss of its disk
	Address string `json:"address"` // where other nodes reach it
	Clients string `json:"clients,omitempty"`
	Rank    Rank   `json:"rank"`
	Role    Role   `json:"role"`
	Leads   bool   `json:"leads"`

	Reached bool          `json:"reached"`         // the node that says so has a connection to it, or is it
	Silent  time.Duration `json:"silent"`          // for how long it has none
	Error   string        `json:"error,omitempty"` // of the latest attempt to reach it
}

// A Role is the part of a node.
type Role string

// The roles of nodes.
const (
	RoleVoter   Role = "voter"   // votes, and may lead
	RoleLearner Role = "learner" // has all locks, answers callers, and does not vote
	RoleOutside Role = "outside" // is not in the configuration yet: it was not reached since it joined
)

// A TokenStatus is a join token that was not removed.
type TokenStatus struct {
	ID     string        `json:"id"`                // names it
	Left   time.Duration `json:"left"`              // for how long it can be used; 0: no longer
	UsedBy string        `json:"used_by,omitempty"` // the name of the node that has used it
}

// Cluster returns the cluster as this node knows it. It waits for nobody.
func (e *Engine) Cluster() ClusterStatus {
	h := e.host
	own := h.store.Identity()
	s := ClusterStatus{Cluster: own.Cluster, Node: own.Name, Voters: defaultVoters}
	var v *view
	var r replica.Status
	e.node.Look(func(now *replica.Replica) { v, r = viewOf(now), now.Status() })
	s.Term, s.Applied, s.Rules = r.Term, r.Applied, r.Rules
	s.State, s.Since = e.state(&r)
	if r.Failed != nil {
		s.Failed = r.Failed.Error()
	}
	if policy, err := policyOf(v); err == nil {
		s.Voters = policy.Voters
	}
	s.Majority = len(r.Voters)/2 + 1
	for _, id := range r.Voters {
		if id == r.ID || h.reaches(id) {
			s.Live++
		}
	}
	nodes, err := join.Nodes(v)
	if err != nil {
		s.Alarms = append(s.Alarms, err.Error())
	}
	for i := range nodes {
		n := h.nodeStatus(&nodes[i], &r)
		s.Nodes = append(s.Nodes, n)
		if n.Leads {
			s.Leader = n.Name
		}
	}
	s.Alarms = append(s.Alarms, h.alarms(&s, nodes, v, &r)...)
	return s
}

// state returns the state of this node, and for how long it has had no quorum.
func (e *Engine) state(r *replica.Status) (State, time.Duration) {
	since, suspended := e.node.Suspended()
	switch {
	case r.Failed != nil:
		return StateStopped, 0
	case r.Contact:
		return StateReady, 0
	case !e.host.ready.Load():
		return StateStarting, since
	case suspended:
		return StateNoQuorum, since
	}
	return StateReady, 0
}

func (h *host) nodeStatus(n *join.Node, r *replica.Status) NodeStatus {
	s := NodeStatus{
		Name:    n.Name,
		ID:      join.FormatID(n.ID),
		Address: n.Address.String(),
		Clients: n.Clients,
		Rank:    n.Rank,
		Role:    RoleOutside,
		Leads:   n.ID == r.Leader,
		Reached: n.ID == r.ID,
	}
	switch {
	case slices.Contains(r.Voters, n.ID):
		s.Role = RoleVoter
	case slices.Contains(r.Learners, n.ID):
		s.Role = RoleLearner
	}
	if s.Reached {
		return s
	}
	s.Silent = h.silent(n.ID)
	s.Reached = s.Silent == 0
	for _, p := range h.transport.Status() {
		if p.ID == n.ID && !s.Reached {
			s.Error = p.LastError
		}
	}
	return s
}

// warnedBefore is how long before its end the certificate of the CA is an alarm.
const warnedBefore = 60 * 24 * time.Hour

// alarms returns what an operator has to act on.
func (h *host) alarms(s *ClusterStatus, nodes []join.Node, v join.View, r *replica.Status) (alarms []string) {
	add := func(format string, args ...any) { alarms = append(alarms, fmt.Sprintf(format, args...)) }
	if why := h.full.Load(); why != nil {
		add("the disk of this node is full: %s", *why)
	}
	if n, err := memberOf(v, s.Node); err == nil && n.ID != r.ID && len(nodes) > 0 {
		add("this node was removed from the cluster: stop it; to use it again, join from an empty folder with a new token")
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Reached {
			silent := max(n.Silent.Round(time.Second), time.Second)
			add("node %q, a %s, has not been reached for %s: %s", n.Name, n.Role, silent, n.Error)
		}
	}
	if len(r.Voters) > 0 && s.Live < s.Majority {
		add("%d of %d voters are reached, and %d are needed: nothing is granted", s.Live, len(r.Voters), s.Majority)
	} else if len(r.Voters) > 1 && s.Live == s.Majority && s.Live < len(r.Voters) {
		add("%d of %d voters are reached: the loss of one more stops the cluster", s.Live, len(r.Voters))
	}
	able := 0
	for i := range nodes {
		if nodes[i].Rank < voters.Off {
			able++
		}
	}
	if able == 0 && len(nodes) > 0 {
		add("all nodes have the rank off, so none may vote instead of one that is lost")
	}
	if left := time.Until(h.keys.AuthorityEnds()); left < warnedBefore {
		add("the certificate of the cluster's CA ends in %s: replace it", left.Round(time.Hour))
	}
	return alarms
}

// Tokens returns the join tokens as this node knows them.
func (e *Engine) Tokens() ([]TokenStatus, error) {
	v := e.Settings().Known()
	tokens, err := join.Tokens(v)
	var all []TokenStatus
	for i := range tokens {
		t := TokenStatus{ID: tokens[i].ID(), Left: max(tokens[i].Ends-v.Now(), 0)}
		if tokens[i].Claim != nil {
			t.UsedBy = tokens[i].Claim.Name
		}
		all = append(all, t)
	}
	return all, err
}
