package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// policies are what the policy of the gate is made of.
type policies struct {
	mu   sync.Mutex        // held while the gate gets its policy, so that the latest one stays
	own  *access.Policy    // by the files of this server; nil if it does not authenticate clients
	seen quorumlock.Policy // of the cluster, as the gate has it

	gated atomic.Bool // there is a gate, and all that was made before it
}

// openGate makes the gate with the policy of this server's files.
func (s *service) openGate(own *access.Policy) {
	if s.policy.own = own; s.node != nil {
		s.policy.seen, _ = s.node.Policy()
	}
	s.gate = access.New(s.engine, s.policyOfGate(), access.Options{
		Acted:   s.acted,
		Callers: s.node != nil,
		Limits:  s.options.limits.bounds(),
	})
	s.policy.gated.Store(true)
}

// setPolicy gives the gate the policy of this server's files, and that of its cluster if it has one.
func (s *service) setPolicy(own *access.Policy) {
	s.policy.mu.Lock()
	defer s.policy.mu.Unlock()
	s.policy.own = own
	if s.node != nil {
		s.policy.seen, _ = s.node.Policy()
	}
	s.gate.Set(s.policyOfGate())
}

// policyOfGate returns the policy of the gate. Under a policy of the cluster, this server authenticates
// by its own files, and the leader decides.
func (s *service) policyOfGate() *access.Policy {
	own := s.policy.own
	switch of := s.policy.seen; {
	case of.Err != nil:
		return &access.Policy{Closed: of.Err.Error()}
	case of.Rules == nil:
		return own
	case own == nil:
		return &access.Policy{Closed: errOpenServer.Error()}
	default:
		merged := *own
		merged.Rules, merged.Quotas, merged.Elsewhere = of.Rules.Rules, of.Rules.Quotas, true
		return &merged
	}
}

var errOpenServer = errors.New("this server does not authenticate its clients, and the policy of its cluster says " +
	"what each of them may do: it needs --tokens or --client-ca")

// checkPolicy refuses to serve without authentication in a cluster with a policy.
func (s *service) checkPolicy(e *quorumlock.Engine) error {
	of, _ := e.Policy()
	if of.Rules != nil && !s.options.knowsClients() {
		return &exit{code: exitUsage, say: errOpenServer}
	}
	return nil
}

// setClusterPolicy sets the policy of the cluster; nil removes it. A server that authenticates nobody refuses to
// set one: it would admit nobody from then on, and its clients would lose what they hold.
func (s *service) setClusterPolicy(ctx context.Context, p *access.Policy) error {
	if p != nil && !s.options.knowsClients() {
		return lockkeeper.Invalid("this server does not authenticate its clients, so it would admit nobody under a policy: " +
			"first start all nodes with --tokens or --client-ca")
	}
	return s.node.SetPolicy(ctx, p)
}

// followPolicy gives the gate each policy of the cluster.
func (s *service) followPolicy() {
	counted := false
	for {
		s.policy.mu.Lock()
		of, changed := s.node.Policy()
		own, before := s.policy.own, counted
		counted = of.Rules != nil
		if of != s.policy.seen { // else an open gate would cut its clients off
			s.policy.seen = of
			s.gate.Set(s.policyOfGate())
		}
		s.policy.mu.Unlock()
		switch {
		case of.Err != nil:
			s.log.Error("nobody is admitted", "error", of.Err)
		case of.Rules != nil && own == nil:
			s.log.Error("nobody is admitted", "error", errOpenServer)
		case of.Rules != nil && !before:
			s.log.Info("the policy of the cluster counts; rules and quotas of this server's own configuration do not")
		case of.Rules == nil && before:
			s.log.Warn("the cluster has no policy any more: each server decides by its own configuration")
		}
		select {
		case <-changed:
		case <-s.life.Done():
			return
		}
	}
}

// clusterAudit implements quorumlock.Config.Audit.
func (s *service) clusterAudit(e quorumlock.AuditEvent) {
	switch {
	case e.Act == nil:
		s.audit.Cluster(e.Index, e.String())
	case s.policy.gated.Load():
		s.acted(*e.Act)
	default: // the node leads already, and this server has no metrics yet
		s.audit.Act(*e.Act)
	}
}
