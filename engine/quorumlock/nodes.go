package quorumlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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
		next.Outage == s.nodes.Outage && next.QuorumLost == s.nodes.QuorumLost &&
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

// outageTime is the time without a leader after which a node states an outage. Elections take less.
const outageTime = 3 * time.Second

// correctSuspension is how often a suspended node corrects what it states of the nodes that it reaches.
const correctSuspension = time.Second

// followSuspension states whether the node is suspended, until Close.
func (h *host) followSuspension(e *Engine) {
	again := time.NewTicker(correctSuspension)
	defer again.Stop()
	for {
		news := e.node.News()
		why, outage, quorumLost := h.suspension(e)
		h.stated.change(func(n *lockkeeper.ClusterNodes) {
			n.Suspended, n.Outage, n.QuorumLost = why, outage, quorumLost
		})
		if !outage || e.node.Status().Failed != nil { // a failed node refuses calls anyway
			why = ""
		}
		e.node.StateOutage(why)
		select {
		case <-news:
		case <-again.C:
		case <-h.life.Done():
			return
		}
	}
}

// suspension returns why the node can perform no calls, "" if it can, whether that is an outage, and whether its
// cause is that no leader is in contact with this node, which is a member.
func (h *host) suspension(e *Engine) (why string, outage, quorumLost bool) {
	s := e.node.Status()
	since, suspended := e.node.Suspended()
	switch {
	case s.Failed != nil:
		return s.Failed.Error(), true, false
	case !suspended:
		return "", false, false
	}
	if _, stuck := e.node.Stuck(); stuck {
		return h.stuckDisk(), true, false
	}
	return h.noLeader(e, &s), since >= outageTime, !h.isRemoved(e.Settings().Known())
}

// stuckDisk says that the disk of this node takes no writes, and what to do.
func (h *host) stuckDisk() string {
	if h.full.Load() != nil {
		return "the disk of this node of the cluster is full: make room, and it goes on by itself"
	}
	return "the disk of this node of the cluster takes no writes: look for its failure, or for what else keeps it busy"
}

// noLeader says that no node leads, which voters this node does not reach, and what to do. It names nodes
// by their addresses for clients, which every client knows.
func (h *host) noLeader(e *Engine, s *replica.Status) string {
	own, nodes := h.store.Identity(), h.known
	v := e.Settings().Known()
	if members, err := join.Nodes(v); err == nil && len(members) > 0 {
		nodes = members
	}
	at := make(map[uint64]string)
	for i := range nodes {
		at[nodes[i].ID] = nodes[i].Clients
	}
	if h.isRemoved(v) {
		return removedText(nodes, own.ID)
	}
	live, missing := 0, []string(nil)
	for _, id := range s.Voters {
		if id == own.ID || h.reaches(id) {
			live++
		} else if at[id] != "" {
			missing = append(missing, at[id])
		}
	}
	self := cmp.Or(at[own.ID], "this node")
	if len(s.Voters) == 0 {
		return fmt.Sprintf("no leader of the cluster has reached %s yet (\"lk cluster ls\" there says more)", self)
	}
	majority := len(s.Voters)/2 + 1
	text := fmt.Sprintf("no node of the cluster leads now: %s reaches %d of %d voters, itself included, and %d are needed",
		self, live, len(s.Voters), majority)
	if len(missing) > 0 && live < majority {
		text += fmt.Sprintf("; start the servers at %s, or mend the network between them",
			strings.Join(missing, " and "))
	}
	return text + " (\"lk cluster ls\" there says more)"
}

// removedText says to clients that this node was removed, and which addresses to use.
func removedText(members []join.Node, own uint64) string {
	text := "the node at this address was removed from its cluster"
	var others []string
	for i := range members {
		if at := members[i].Clients; at != "" && members[i].ID != own {
			others = append(others, at)
		}
	}
	if len(others) == 0 {
		return text + ": use another one"
	}
	return text + ": use " + strings.Join(others, " or ")
}
