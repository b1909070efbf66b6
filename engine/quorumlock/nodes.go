package quorumlock

import (
	"slices"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

var _ lockkeeper.ClusterNode = (*Engine)(nil)

// stated is what the node states to its clients. It is safe for concurrent use.
type stated struct {
	mu      sync.Mutex
	nodes   lockkeeper.ClusterNodes
	changed chan struct{} // closed when nodes changes
}

// change changes what is stated. change must not keep the nodes.
func (s *stated) change(change func(*lockkeeper.ClusterNodes)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.nodes
	change(&next)
	same := next.ID == s.nodes.ID && next.Self == s.nodes.Self && next.Suspended == s.nodes.Suspended &&
		slices.Equal(next.Addresses, s.nodes.Addresses)
	if s.nodes = next; !same {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Nodes implements lockkeeper.ClusterNode. A node is suspended as long as it has had no contact with a
// leader for an election timeout, or has stopped for good.
func (e *Engine) Nodes() (lockkeeper.ClusterNodes, <-chan struct{}) {
	s := &e.host.stated
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes, s.changed
}

// stateMembers states the addresses of the members for clients.
func (h *host) stateMembers(members []join.Node) {
	own := h.store.Identity()
	h.stated.change(func(n *lockkeeper.ClusterNodes) {
		n.ID, n.Addresses, n.Self = own.Cluster, nil, ""
		for i := range members {
			m := &members[i]
			if m.Clients == "" {
				continue
			}
			n.Addresses = append(n.Addresses, m.Clients)
			if m.ID == own.ID {
				n.Self = m.Clients
			}
		}
	})
}

// followSuspension states whether the node is suspended, until Close.
func (h *host) followSuspension(e *Engine) {
	said := ""
	for {
		now := ""
		_, err := e.node.Await(h.life, func(s replica.Status) bool {
			now = ""
			if _, suspended := e.node.Suspended(); s.Failed != nil {
				now = s.Failed.Error()
			} else if suspended {
				now = replica.ErrNoLeader.Error()
			}
			return now != said
		})
		if err != nil {
			return
		}
		said = now
		h.stated.change(func(n *lockkeeper.ClusterNodes) { n.Suspended = said })
	}
}
