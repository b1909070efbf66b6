package quorumlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
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
	nodes, unreadable := join.Nodes(v)
	for i := range nodes {
		n := h.nodeStatus(&nodes[i], &r)
		s.Nodes = append(s.Nodes, n)
		if n.Leads {
			s.Leader = n.Name
		}
	}
	s.Alarms = h.alarms(&s, v, len(r.Voters), unreadable)
	return s
}

// Probe makes a call that changes nothing, and takes what a change takes: the leader answers, and a majority of
// the voters writes it to disk. The policy of the cluster does not matter to it. An error says why it was not made.
func (e *Engine) Probe(ctx context.Context) error { return pass(ctx, e.node) }

// Changed returns a channel that is closed when the state of this node, its leader or the voters have
// changed since the call.
func (e *Engine) Changed() <-chan struct{} { return e.node.News() }

// state returns the state of this node, and for how long it has been in one that it may leave by itself.
func (e *Engine) state(r *replica.Status) (lockkeeper.NodeState, time.Duration) {
	since, suspended := e.node.Suspended()
	stuckFor, stuck := e.node.Stuck()
	switch {
	case r.Failed != nil:
		return lockkeeper.NodeStopped, 0
	case stuck:
		return lockkeeper.NodeDiskStuck, stuckFor
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
