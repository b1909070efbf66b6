package server

import (
	"cmp"
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Drain has the server's gate take no new claims, and tells clients so, those that
// are there and those that come; the reason is for people. What there is goes on:
// those who wait keep their places and are granted what becomes free, and renewals,
// releases and questions are answered. It returns at once, and a second call
// changes nothing.
func (s *Server) Drain(reason string) {
	s.gate.Drain(reason)
	if s.drained.Swap(true) {
		return
	}
	reason, _ = s.gate.Draining() // that of whoever came first, perhaps by another way
	s.logger.Info("draining", "reason", reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Lock()
		welcomed := c.welcomed // else it is told after the welcome
		c.Unlock()
		if welcomed {
			c.post(&wire.ServerFrame{Draining: reason})
		}
	}
}

// state is how the server is, for the client at c.
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
	return state
}

// drainFor drains the server for the client at c, if it may do that.
func (s *Server) drainFor(ctx context.Context, c *conn, m *wire.Drain) (lockkeeper.ServerState, error) {
	if s.options.Drain == nil {
		return lockkeeper.ServerState{}, &lockkeeper.Error{Err: lockkeeper.ErrUnsupported,
			Detail: "this server is not drained by a request: stop its process"}
	}
	// as any note: it is printed for others
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
	state.Began = began
	s.options.Drain(m.GetReason())
	state.Draining, _ = s.gate.Draining()
	return state, nil
}

// Connections is how many clients are connected.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Sessions is how many sessions were attached or renewed by a connection within
// their TTL, about.
func (s *Server) Sessions() int { return s.routes.count() }

// Serves reports whether the client of a session, which is named as the engine does, is
// connected here: whether it attached or renewed that last by a connection which lives.
func (s *Server) Serves(session string) bool { return s.routes.serves(session) }
