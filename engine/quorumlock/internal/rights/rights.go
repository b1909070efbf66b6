// Package rights decides, at the leader of a cluster, what callers may do and how much of it.
//
//	package access   rules and quotas: what one identity may do, and why not
//	package rights   how much each identity has in the table, and in calls on their way to it
//	package replica  asks for each call before it proposes it, see [replica.Decider]
//
// A session belongs to the identity with which its name begins, "ci:k3v9" to ci. The node at which a
// call came in has authenticated the caller, and other nodes believe it that. They do not believe it
// the session: a call for a session of another identity is denied.
//
// An identity may renew and release what it has as long as a rule names it. What a quota counts:
//
//	sessions  open in the table, and those that calls on their way may open
//	claims    waiting and held in the table, and those that calls on their way may make
//	waiting   waiting in the table, and calls on their way that may wait
//	paths     targets of those claims
//
// A claim that the table has already is never refused for a quota. A [Decider] counts the table once,
// when the first identity with a quota makes a call, and then follows the commands.
package rights

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Decider decides under one policy. It implements replica.Decider.
type Decider struct {
	rules   *access.Rules
	damage  error // why the policy can't be read; nil if it can
	of      map[string]*access.Rights
	refused map[string]error // identities that no rule names
	usage   usage
}

var _ replica.Decider = (*Decider)(nil)

// New returns the decider of a policy as access.Policy.Encode writes it. If it can't read the policy, it
// denies everything.
func New(policy []byte) *Decider {
	d := &Decider{of: make(map[string]*access.Rights), refused: make(map[string]error)}
	p, err := access.DecodePolicy(policy)
	if err != nil {
		d.damage = err
		return d
	}
	d.rules = access.CompileRules(p)
	return d
}

// mostRemembered bounds the identities whose rights stay prepared.
const mostRemembered = 10_000

// rightsOf returns what an identity may do.
func (d *Decider) rightsOf(name string) (*access.Rights, error) {
	if r := d.of[name]; r != nil {
		return r, nil
	}
	if err := d.refused[name]; err != nil {
		return nil, err
	}
	if len(d.of)+len(d.refused) >= mostRemembered {
		clear(d.of)
		clear(d.refused)
	}
	r, err := d.rules.Of(name)
	if err != nil {
		d.refused[name] = err
	} else {
		d.of[name] = r
	}
	return r, err
}

// Permit implements replica.Decider.
func (d *Decider) Permit(t *table.Table, by replica.Caller, c *table.Command) error {
	if c.Op == table.Renew && c.Key.Session == "" {
		return nil // no session has this name: nodes learn the time by it
	}
	switch {
	case d.damage != nil:
		return denied("this node leads, and can't decide by the policy: %s", d.damage)
	case by.Name == "":
		return denied("the cluster has a policy, and the server at which this call came in does not authenticate its " +
			"clients: it needs --tokens or --client-ca")
	}
	r, err := d.rightsOf(by.Name)
	if err != nil {
		return err
	}
	switch c.Op {
	case table.Attach:
		has, open := t.TTL(c.Session.ID)
		keeps := open && (has == 0 || c.Session.TTL != 0 && c.Session.TTL <= has)
		if err := r.Attach(&c.Session, keeps); err != nil {
			return err
		}
		return d.usage.attach(t, by.Name, r.Quota(), &c.Session)
	case table.Renew:
		return r.Session(c.Key.Session)
	case table.Claim:
		if err := r.Session(c.Key.Session); err != nil {
			return err
		}
		if err := r.Claim(&c.Want); err != nil {
			return err
		}
		return d.usage.claim(t, by.Name, r.Quota(), c)
	case table.End:
		return permitEnd(t, r, c)
	}
	return denied("%s may not do that", by.Name)
}

func permitEnd(t *table.Table, r *access.Rights, c *table.Command) error {
	if err := r.Session(c.Key.Session); err != nil {
		return err
	}
	switch c.Ending.Kind {
	case lockkeeper.Revoke:
		st, found := t.Status(c.Ending.Ref)
		return r.Revoke(c.Ending.Ref, st, found)
	case lockkeeper.Thaw:
		return r.Thaw(c.Ending.Path)
	}
	return nil
}

// Dropped implements replica.Decider.
func (d *Decider) Dropped(c *table.Command) { d.usage.arrived(c) }

// Applied implements replica.Decider.
func (d *Decider) Applied(t *table.Table, c *table.Command) {
	d.usage.arrived(c)
	d.usage.follow(t, c)
}

func denied(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: fmt.Sprintf(format, args...)}
}
