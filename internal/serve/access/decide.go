package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Rules are the rules and quotas of a Policy, for an engine that decides by them itself.
type Rules struct{ compiled *compiled }

// CompileRules returns the rules and quotas of a policy.
func CompileRules(p *Policy) *Rules {
	return &Rules{compile(&Policy{Rules: p.Rules, Quotas: p.Quotas})}
}

// Of returns what an identity may do. The error is the ErrDenied of an identity that no rule names, or
// whose name is none.
func (r *Rules) Of(name string) (*Rights, error) {
	if err := IdentityName(name); err != nil {
		return nil, denied("%s", err.(*lockkeeper.Error).Detail)
	}
	of := r.compiled.rightsOf(name, time.Time{})
	if of == nil {
		return nil, nobody(name)
	}
	return &Rights{name: name, names: names{prefix: name + separator}, rights: of}, nil
}

// Rights are what one identity may do. Sessions are named as the engine names them. All errors are
// ErrDenied, with the reason lockkeeper.Quota for a quota, unless a method says otherwise.
type Rights struct {
	name   string
	names  names
	rights *rights
}

// Quota returns how much the identity may have.
func (r *Rights) Quota() limits.Quota { return r.rights.limits }

// Session returns why the identity may not name a session as its own; nil if it may.
func (r *Rights) Session(id string) error {
	if r.names.owns(id) {
		return nil
	}
	return denied("session %q is not one of %s", cut(id), r.name)
}

// Attach returns why the identity may not open or take over a session; nil if it may. keeps says that the
// session is open with this TTL, or a longer one: then a lower quota does not take it away.
func (r *Rights) Attach(s *lockkeeper.Session, keeps bool) error {
	if err := r.Session(s.ID); err != nil || keeps {
		return err
	}
	return r.rights.allowsTTL(r.name, s.TTL)
}

// Claim returns why the identity may not make a claim or a freeze, apart from the numbers of its quota;
// nil if it may.
func (r *Rights) Claim(w *lockkeeper.Want) error {
	if _, err := r.rights.allowsTargets(r.name, w); err != nil {
		return err
	}
	if w.Inside != (lockkeeper.Ref{}) && !r.names.owns(w.Inside.Session) {
		return insideAnother(r.name, w.Inside)
	}
	return r.rights.allowsPriority(r.name, w)
}

// Thaw returns why the identity may not thaw a path; nil if it may.
func (r *Rights) Thaw(at lockkeeper.Path) error { return r.rights.may(r.name, Freeze, at) }

// Revoke returns why the identity may not revoke a claim; nil if it may. st is the status of the claim
// at the engine, found says that there is one. A claim that the identity may not see is ErrNotHeld.
func (r *Rights) Revoke(ref lockkeeper.Ref, st lockkeeper.Status, found bool) error {
	if _, some := r.rights.at[Revoke]; !some {
		return r.mayNotRevoke(ref)
	}
	_, err := r.rights.allowsRevoke(r.name, r.names, ref, &st, found)
	return err
}

func (r *Rights) mayNotRevoke(ref lockkeeper.Ref) error {
	return mayNotRevoke(r.name, r.names, r.rights, ref)
}

func mayNotRevoke(name string, n names, r *rights, ref lockkeeper.Ref) error {
	ref.Session = n.out(ref.Session)
	return denied("%s may not revoke %s: %s", name, ref, r.describe(Revoke))
}

// allowsTTL returns the refusal of a longer TTL than the quota allows.
func (r *rights) allowsTTL(name string, ttl time.Duration) error {
	most := time.Duration(r.quota.LongestTTL)
	if most <= 0 || ttl != 0 && ttl <= most {
		return nil
	}
	asked := "TTL " + ttl.String()
	if ttl == 0 {
		asked = "a session without end"
	}
	return overdrawn("%s is longer than %s, the longest TTL that %s may have", asked, most, name)
}

// allowsTargets returns the denial of a claim or a freeze, and the path that it is about.
func (r *rights) allowsTargets(name string, w *lockkeeper.Want) (lockkeeper.Path, error) {
	verb := Lock
	if w.Freeze > 0 {
		verb = Freeze
	}
	for _, target := range w.Targets {
		if err := r.may(name, verb, target.Path); err != nil {
			return target.Path, err
		}
	}
	return "", nil
}

func insideAnother(name string, ref lockkeeper.Ref) error {
	return denied("%s makes a claim inside %s, which is another's: that goes inside own claims only", name, ref)
}

// allowsPriority returns the refusal of a higher priority than the quota allows.
func (r *rights) allowsPriority(name string, w *lockkeeper.Want) error {
	if most := r.quota.HighestPriority; most != nil && w.Priority > *most {
		return overdrawn("priority %d is higher than %d, the highest that %s may have", w.Priority, *most, name)
	}
	return nil
}

// allowsRevoke returns the first path of a claim, and why the identity may not revoke it. A claim that
// the identity may not see does not exist for it.
func (r *rights) allowsRevoke(name string, n names, ref lockkeeper.Ref, st *lockkeeper.Status, found bool,
) (lockkeeper.Path, error) {
	var at lockkeeper.Path
	if len(st.Grants) > 0 {
		at = st.Grants[0].Path
	}
	forbidden := slices.IndexFunc(st.Grants, func(g lockkeeper.Grant) bool { return !r.allows(Revoke, g.Path) })
	switch {
	case found && at != "" && forbidden < 0:
		return at, nil
	case found && at != "" && r.sees(n, st):
		return at, r.may(name, Revoke, st.Grants[forbidden].Path)
	}
	ref.Session = n.out(ref.Session)
	return "", &lockkeeper.Error{Err: lockkeeper.ErrNotHeld, Detail: "there is no claim " + ref.String() + " that " +
		name + " may see"}
}

// sees reports whether the identity may see st, a status of the engine.
func (r *rights) sees(n names, st *lockkeeper.Status) bool {
	_, looks := r.at[Look]
	return r.open || n.owns(st.Ref.Session) ||
		slices.ContainsFunc(st.Grants, func(g lockkeeper.Grant) bool {
			return g.Path == lockkeeper.Root && looks || r.allows(Look, g.Path) // a freeze of Root freezes each path
		})
}

// allowsSomething reports whether the identity may do anything at the path or below it.
func (r *rights) allowsSomething(at lockkeeper.Path) bool {
	for v, where := range r.at {
		if r.allows(v, at) {
			return true
		}
		for path := range where.below {
			if at.Covers(path) {
				return true
			}
		}
	}
	return r.open
}

// A document is the form in which an engine keeps rules and quotas.
type document struct {
	Form   int     `json:"form"`
	Rules  []Rule  `json:"rules"`
	Quotas []Quota `json:"quotas,omitempty"`
}

// documentForm rises with every change that lets an earlier program decide otherwise.
const documentForm = 1

// Encode returns the rules and quotas of p as DecodePolicy reads them; an ErrInvalid that names every
// mistake in them if there are some.
func (p *Policy) Encode() ([]byte, error) {
	checked := Policy{Rules: p.Rules, Quotas: p.Quotas}
	if err := checked.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(document{Form: documentForm, Rules: p.Rules, Quotas: p.Quotas})
}

// DecodePolicy reads what Encode wrote. An error also means that the text is of a later program: nobody
// may be allowed anything by what can be read of it.
func DecodePolicy(text []byte) (*Policy, error) {
	var d document
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("the policy of the cluster: %w", err)
	}
	if d.Form != documentForm {
		return nil, fmt.Errorf("the policy of the cluster has form %d, this program has form %d", d.Form, documentForm)
	}
	p := &Policy{Rules: d.Rules, Quotas: d.Quotas}
	return p, p.Check()
}
