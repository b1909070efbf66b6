package quorumlock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A TokenStatus is a join token that was not removed.
type TokenStatus struct {
	ID     string        `json:"id"`                // names it
	Left   time.Duration `json:"left"`              // for how long it can be used; 0: no longer
	UsedBy string        `json:"used_by,omitempty"` // the name of the node that has used it
}

// Cluster implements lockkeeper.ClusterNode.
func (e *Engine) Cluster() lockkeeper.ClusterStatus {
	h := e.host
	own := h.store.Identity()
	s := lockkeeper.ClusterStatus{
		Cluster: own.Cluster,
		Node:    own.Name,
		Voters:  defaultVoters,
		Nodes:   []lockkeeper.NodeStatus{},
	}
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

// Changed returns a channel that is closed when the state of this node, its leader or the voters have
// changed since the call.
func (e *Engine) Changed() <-chan struct{} { return e.node.News() }

// state returns the state of this node, and for how long it has had no quorum.
func (e *Engine) state(r *replica.Status) (lockkeeper.NodeState, time.Duration) {
	since, suspended := e.node.Suspended()
	switch {
	case r.Failed != nil:
		return lockkeeper.NodeStopped, 0
	case r.Contact:
		return lockkeeper.NodeReady, 0
	case !e.host.ready.Load():
		return lockkeeper.NodeStarting, since
	case suspended:
		return lockkeeper.NodeNoQuorum, since
	}
	return lockkeeper.NodeReady, 0
}

func (h *host) nodeStatus(n *join.Node, r *replica.Status) lockkeeper.NodeStatus {
	s := lockkeeper.NodeStatus{
		Name:    n.Name,
		ID:      join.FormatID(n.ID),
		Address: n.Address.String(),
		Clients: n.Clients,
		Rank:    n.Rank.String(),
		Role:    lockkeeper.NodeOutside,
		Leads:   n.ID == r.Leader,
		Reached: n.ID == r.ID,
	}
	switch {
	case slices.Contains(r.Voters, n.ID):
		s.Role = lockkeeper.NodeVoter
	case slices.Contains(r.Learners, n.ID):
		s.Role = lockkeeper.NodeLearner
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

// isRemoved reports whether this node was removed from the cluster. Others refuse a removed node at once, so
// it mostly knows from their refusals alone, and not from the log.
func (h *host) isRemoved(v join.View) bool {
	id := join.FormatID(h.store.Identity().ID)
	if len(v.Setting(expelledKeys+id).Value) > 0 {
		return true
	}
	for _, p := range h.transport.Status() {
		if !p.Connected && strings.Contains(p.LastError, id) && strings.Contains(p.LastError, join.WasRemoved) {
			return true
		}
	}
	return false
}

// warnedBefore is how long before its end the certificate of the CA is an alarm.
const warnedBefore = 60 * 24 * time.Hour

// alarms returns what an operator has to act on.
func (h *host) alarms(s *lockkeeper.ClusterStatus, nodes []join.Node, v join.View,
	r *replica.Status) (alarms []string) {
	add := func(format string, args ...any) { alarms = append(alarms, fmt.Sprintf(format, args...)) }
	if why := h.full.Load(); why != nil {
		add("the disk of this node is full: %s", *why)
	}
	if h.isRemoved(v) {
		add("this node was removed from the cluster: stop it; to use it again, join from an empty folder with a new token")
		return alarms // the others refuse it
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
