package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// An admission is the state that all passes of one credential share.
type admission struct {
	gate   *Gate
	of     credential
	name   string
	usage  *limits.Identity
	rights atomic.Pointer[rights] // nil: withdrawn
	life   context.Context        // ends when it is withdrawn
	end    context.CancelFunc
	timer  *time.Timer // checks whether it has expired; guarded by gate.mu
}

func newAdmission(g *Gate, of credential, r *rights) *admission {
	a := &admission{gate: g, of: of, name: of.name, usage: g.ledger.Identity(of.name)}
	a.life, a.end = context.WithCancel(context.Background())
	a.rights.Store(r)
	return a
}

// longestExpiryPause bounds the time between two checks of an unused credential, because the wall
// clock may be set, and the computer may sleep.
const longestExpiryPause = time.Minute

// watch withdraws a when its credential expires. The caller holds g.mu.
func (g *Gate) watch(a *admission) {
	r := a.rights.Load()
	if a.timer != nil {
		a.timer.Stop()
	}
	if r.expires.IsZero() {
		return
	}
	a.timer = time.AfterFunc(min(max(time.Until(r.expires), 0), longestExpiryPause), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch r := a.rights.Load(); {
		case r == nil:
		case r.expired():
			g.withdraw(a)
		default:
			g.watch(a)
		}
	})
}

// withdraw ends a. The caller holds g.mu.
func (g *Gate) withdraw(a *admission) {
	a.rights.Store(nil) // first: a call that Done wakes can do nothing more
	a.end()
	if a.timer != nil {
		a.timer.Stop()
	}
	if g.admissions[a.of] == a {
		delete(g.admissions, a.of)
	}
}

// expire withdraws a if its credential has expired. If the clock is set back later, or the
// credential is extended, the same credential begins another admission.
func (g *Gate) expire(a *admission) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := a.rights.Load(); r != nil && r.expired() {
		g.withdraw(a)
	}
}

// current returns what the identity may do now, or an ErrDenied if a is withdrawn.
func (a *admission) current() (*rights, error) {
	r := a.rights.Load()
	if r != nil && r.expired() { // the timer has not fired yet
		a.gate.expire(a)
		r = a.rights.Load()
	}
	if r == nil {
		return nil, denied("the credentials of %s are no longer valid: they have expired, or were withdrawn; use "+
			"new ones", a.name)
	}
	return r, nil
}

// A Pass is what an identity may use. It is safe for concurrent use.
type Pass struct {
	admission *admission
	from      string
}

// Name returns the name of the identity; "" if the server has no policy.
func (p *Pass) Name() string { return p.admission.name }

// Usage returns the counts of what the identity uses of the server.
func (p *Pass) Usage() *limits.Identity { return p.admission.usage }

// Engine returns the gate's engine as this identity may use it. It answers as promptly as that
// one, and is a lockkeeper.GroupCommitter or a lockkeeper.Starter if that one is. Closing it has no
// effect.
func (p *Pass) Engine() lockkeeper.Engine {
	if group, ok := p.admission.gate.engine.(lockkeeper.GroupCommitter); ok {
		return &guardedGroup{p.guarded(), group}
	}
	if starter, ok := p.admission.gate.engine.(lockkeeper.Starter); ok {
		return &guardedStarter{p.guarded(), starter}
	}
	e := p.guarded()
	return &e
}

func (p *Pass) guarded() guarded {
	a := p.admission
	e := guarded{pass: *p, engine: a.gate.engine}
	if a.gate.counts || a.name != "" {
		e.usage = a.usage
	}
	if a.name != "" {
		e.names = names{prefix: a.name + ":"}
	}
	return e
}

// Done returns a channel that is closed when the pass is withdrawn: its token was revoked, its
// certificate has expired, or its identity was removed. From then on its engine refuses every call
// with ErrDenied. All passes of one credential share the channel.
func (p *Pass) Done() <-chan struct{} { return p.admission.life.Done() }

// Withdrawn reports whether the pass is withdrawn. It is so as soon as a call can be refused for that,
// which is a moment before Done is closed.
func (p *Pass) Withdrawn() bool { return p.admission.rights.Load() == nil }

// May returns nil if the identity may do v at the path; "" stands for all paths. Otherwise the
// error is an ErrDenied that names the identity, the verb and the path, and Options.Acted is
// called.
func (p *Pass) May(v Verb, at lockkeeper.Path) error {
	r, err := p.enter()
	if err != nil {
		return err
	}
	if err := r.may(p.admission.name, v, at); err != nil {
		p.acted(Act{Verb: v, Path: at, Err: err})
		return err
	}
	return nil
}

// Named returns an ErrDenied if no rule names the identity. Where the engine decides, such an identity has a pass: its
// calls are denied there, and what the server itself answers is denied by this.
func (p *Pass) Named() error {
	r, err := p.enter()
	if err == nil && !r.open && len(r.at) == 0 {
		err = unnamed(p.admission.name)
	}
	return err
}

// Reach returns the paths at which the identity may do v, each with everything below it, sorted.
// "*" stands for all paths; an empty list for none, also of a pass that is withdrawn. It is for
// display: only May decides.
func (p *Pass) Reach(v Verb) []string {
	r, err := p.admission.current()
	if err != nil {
		return []string{}
	}
	at := r.at[v]
	if r.open || at.all {
		return []string{"*"}
	}
	paths := make([]string, 0, len(at.below))
	for path := range at.below {
		paths = append(paths, string(path))
	}
	slices.Sort(paths)
	return paths
}

// SeesEverything reports whether the identity may look at all paths. It is for display, and denies
// nothing: use May for that.
func (p *Pass) SeesEverything() bool {
	r, err := p.admission.current()
	return err == nil && r.allows(Look, "")
}

// Drain calls Gate.Drain if a rule allows that to this identity, and returns an ErrDenied
// otherwise. began is false if the gate was draining already.
func (p *Pass) Drain(reason string) (began bool, err error) {
	if err := p.May(Drain, ""); err != nil {
		return false, err
	}
	began = p.admission.gate.Drain(reason)
	p.acted(Act{Verb: Drain, Label: lockkeeper.Label{Note: reason}})
	return began, nil
}

// enter is current, and calls Options.Acted for a refusal.
func (p *Pass) enter() (*rights, error) {
	r, err := p.admission.current()
	if err != nil {
		p.acted(Act{Verb: Connect, Err: err})
	}
	return r, err
}

func (p *Pass) acted(a Act) {
	a.Identity, a.From = p.admission.name, p.from
	p.admission.gate.acted(a)
}

// may returns nil if r allows v at the path, and the denial otherwise.
func (r *rights) may(name string, v Verb, at lockkeeper.Path) error {
	if r.allows(v, at) {
		return nil
	}
	where := string(at)
	switch {
	case v == Drain:
		where = "this server"
	case at == "", at == lockkeeper.Root:
		where = "everything"
	}
	e := denied("%s may not %s %s: %s", name, v, where, r.describe(v)).(*lockkeeper.Error)
	e.Path = at
	return e
}

// describe says where the rules allow v.
func (r *rights) describe(v Verb) string {
	at, ok := r.at[v]
	if len(r.at) == 0 {
		return "no rule allows it anything"
	}
	if !ok {
		return fmt.Sprintf("no rule allows it to %s anything", v)
	}
	const most = 3
	paths := make([]string, 0, len(at.below))
	for p := range at.below {
		paths = append(paths, string(p))
	}
	slices.Sort(paths)
	if len(paths) > most {
		paths = append(paths[:most], fmt.Sprintf("%d more", len(paths)-most))
	}
	return "the rules allow that below " + strings.Join(paths, ", ")
}

func denied(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: fmt.Sprintf(format, args...)}
}

// overdrawn returns the refusal of a request that would exceed a quota.
func overdrawn(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: fmt.Sprintf(format, args...)}
}
