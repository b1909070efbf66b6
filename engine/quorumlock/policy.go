package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/table"
)

// policy is the policy of the cluster as this node has it. It is safe for concurrent use.
type policy struct {
	mu      sync.Mutex
	now     Policy
	changed chan struct{} // closed when now changes
}

// A Policy is what a node knows of the policy of its cluster.
type Policy struct {
	Rules *access.Policy // rules and quotas; nil: the cluster has no policy, or Err says why they can't be read
	Err   error
}

// set takes the value of the setting.
func (p *policy) set(text []byte) {
	now := Policy{}
	if len(text) > 0 {
		now.Rules, now.Err = access.DecodePolicy(text)
	}
	if now.Err != nil {
		now.Rules = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
	close(p.changed)
	p.changed = make(chan struct{})
}

// Policy returns the policy of the cluster as this node has it, and a channel that is closed when it
// changes. The leader decides by it about all calls of callers that access.WithCaller names; callers
// without a name may do nothing then. The policy must not be changed.
func (e *Engine) Policy() (Policy, <-chan struct{}) {
	p := &e.host.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

// ReadPolicy returns the policy that counts now.
func (e *Engine) ReadPolicy(ctx context.Context) (*access.Policy, error) {
	v, err := e.Settings().Read(ctx)
	if err != nil {
		return nil, err
	}
	text := v.Setting(replica.PolicyKey).Value
	if len(text) == 0 {
		return nil, nil
	}
	return access.DecodePolicy(text)
}

// SetPolicy makes the rules and quotas of p the policy of the cluster; nil removes it. When it returns,
// all calls that begin later anywhere are decided by it. ErrInvalid names every mistake in p.
func (e *Engine) SetPolicy(ctx context.Context, p *access.Policy) error {
	var text []byte
	if p != nil {
		var err error
		if text, err = p.Encode(); err != nil {
			return err
		}
		if len(text) > replica.MaxSettingValue {
			return lockkeeper.Invalid("the policy has %d bytes: at most %d are possible; name identities and paths by patterns",
				len(text), replica.MaxSettingValue)
		}
	}
	return e.change(ctx, replica.PolicyKey, func(join.View) ([]byte, error) { return text, nil })
}

// An AuditEvent is an act or a change that the log of the cluster has at a position, or that was decided
// there. Nodes that lead one after the other may both report one event.
type AuditEvent struct {
	Index uint64 // the position

	Act *access.Act // of an operator, or denied

	Setting string // the key of a setting that was changed
	Value   string // its value; "" if it was removed

	Node string // a node that has changed in the configuration of the log: its name, else its id
	Role string // what it is now: voter, learner, or removed
}

// roles says what a node is after a change of the configuration.
var roles = map[voters.ChangeKind]string{voters.Add: "learner", voters.Promote: "voter", voters.Remove: "removed"}

// audit implements replica.Config.Audit. The node is locked.
func (h *host) audit(r replica.Record) {
	if h.config.Audit == nil {
		return
	}
	e := AuditEvent{Index: r.Index}
	switch {
	case r.Setting != nil:
		e.Setting, e.Value = r.Setting.Key, string(r.Setting.Value)
	case r.Change != nil:
		e.Node = h.names[r.Change.ID]
		if e.Node == "" {
			e.Node = join.FormatID(r.Change.ID)
		}
		e.Role = roles[r.Change.Kind]
	case r.Command != nil && !errors.Is(r.Err, lockkeeper.Quota): // an exceeded quota is no denial
		e.Act = actOf(&r)
	default:
		return
	}
	h.config.Audit(e)
}

// actOf describes a denied call, or an operator's act. The session of an act names its identity.
func actOf(r *replica.Record) *access.Act {
	c := r.Command
	a := &access.Act{Identity: r.Caller.Name, From: r.Caller.From, Err: r.Err, Index: r.Index}
	if !r.Denied {
		a.Identity = access.Owner(c.Key.Session)
	}
	if failed, ok := errors.AsType[*lockkeeper.Error](r.Err); ok {
		a.Path = failed.Path
	}
	switch c.Op {
	case table.Attach:
		a.Verb, a.Label = access.Connect, c.Session.Label
	case table.Claim:
		a.Verb, a.Label, a.Ref = access.Lock, c.Want.Label, lockkeeper.Ref{Session: c.Key.Session, ID: c.Want.ID}
		if c.Want.Freeze > 0 {
			a.Verb = access.Freeze
		}
		if a.Path == "" && len(c.Want.Targets) > 0 {
			a.Path = c.Want.Targets[0].Path
		}
	case table.End:
		a.Verb, a.Label, a.Force = access.Lock, c.Ending.Label, c.Ending.Force
		switch c.Ending.Kind {
		case lockkeeper.Revoke:
			a.Verb, a.Ref = access.Revoke, c.Ending.Ref
		case lockkeeper.Thaw:
			a.Verb, a.Path = access.Thaw, c.Ending.Path
		}
	default:
		a.Verb = access.Connect
	}
	return a
}

// String describes what is not an act.
func (e AuditEvent) String() string {
	switch {
	case e.Node != "":
		return fmt.Sprintf("node %s: %s", e.Node, e.Role)
	case e.Setting != "" && e.Value == "":
		return fmt.Sprintf("setting %s: removed", e.Setting)
	case e.Setting != "":
		return fmt.Sprintf("setting %s: %.2000s", e.Setting, e.Value)
	}
	return ""
}
