package server

import (
	"cmp"
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Drain makes the gate refuse new claims, and notifies present and future clients; the reason is for
// people. Waiting claims keep their positions and are granted, and all other requests work as before.
// It returns at once. A second call has no effect.
func (s *Server) Drain(reason string) {
	s.gate.Drain(reason)
	if s.drained.Swap(true) {
		return
	}
	reason, _ = s.gate.Draining() // the first one counts, which may be the gate's
	s.logger.Info("draining", "reason", reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Lock()
		welcomed := c.welcomed // else the handshake notifies it
		c.Unlock()
		if welcomed {
			c.post(&wire.ServerFrame{Draining: reason})
		}
	}
}

// state returns the state of the server, for the client at c.
func (s *Server) state(ctx context.Context, c *conn) lockkeeper.ServerState {
	state := lockkeeper.ServerState{Version: s.options.Name}
	if s.options.About != nil {
		state = s.options.About(ctx)
	}
	state.Uptime = cmp.Or(state.Uptime, s.routes.uptime())
	state.Engine = c.engine.Guarantees().Name
	state.Identity = c.identity
	state.Draining, _ = s.gate.Draining()
	state.Connections = int64(s.Connections())
	if !c.pass.SeesEverything() {
		state.Cluster = nil
	}
	return state
}

// drainFor drains the server at the request of the client at c, if the rules allow it to that
// client.
func (s *Server) drainFor(ctx context.Context, c *conn, m *wire.Drain) (lockkeeper.ServerState, error) {
	if s.options.Drain == nil {
		return lockkeeper.ServerState{}, &lockkeeper.Error{Err: lockkeeper.ErrUnsupported,
			Detail: "this server is not drained by a request: stop its process"}
	}
	// The reason is printed for others, so it is checked as any note.
	said := lockkeeper.Ending{Kind: lockkeeper.Revoke, Label: lockkeeper.Label{Note: m.GetReason()}}
	if err := said.Check(); err != nil {
		return lockkeeper.ServerState{}, err
	}
	state := s.state(ctx, c)
	if err := c.pass.May(access.Drain, ""); err != nil {
		return lockkeeper.ServerState{}, err
	}
	if m.GetUnlessVersion() != "" && m.GetUnlessVersion() == state.Version {
		state.Already = true
		return state, nil
	}
	began, err := c.pass.Drain(m.GetReason())
	if err != nil {
		return lockkeeper.ServerState{}, err
	}
	s.options.Drain(m.GetReason())
	state = s.state(ctx, c) // now it counts what keeps the server alive
	state.Began = began
	return state, nil
}

// Connections returns the number of connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Sessions returns the number of sessions that were attached or renewed here within their TTL; some may
// have ended within sweepTime.
func (s *Server) Sessions() int { return s.routes.count() }

// Serves reports whether the client of a session is connected here: whether the connection lives over
// which the session was attached or renewed last. The session is named as the engine names it.
func (s *Server) Serves(session string) bool { return s.routes.serves(session) }
