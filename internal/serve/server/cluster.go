package server

import "github.com/lockkeeper/lockkeeper/internal/serve/wire"

// followNodes notifies the clients of changes of the cluster until the server ends.
//
//	Nodes ──> s.nodes ──> Welcome of each new client
//	               └────> each client with another state: before its next write, one frame
//
// So a client that does not read misses intermediate states, and costs one frame at most.
func (s *Server) followNodes() {
	for {
		nodes, changed := s.options.Cluster.Nodes()
		s.nodes.Store(wire.NewCluster(&nodes))
		s.mu.Lock()
		for c := range s.conns {
			c.Signal()
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.life.Done():
			return
		}
	}
}

// reportNodes adds the present nodes of the cluster to the outbox, unless the client knows them. The
// lock is held.
func (c *conn) reportNodes() {
	if now := c.server.nodes.Load(); c.welcomed && now != nil && now != c.stated && c.HasRoom() {
		c.stated = now
		c.Out.PutFrame(&wire.ServerFrame{Cluster: now})
	}
}
