package access

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Usage returns the usage of the identity, without expired sessions.
func (g *Gate) Usage(name string) (claims, waiting, sessions, paths int) {
	i := g.ledger.Identity(name)
	i.Remembered()
	return i.Used(limits.Claims), i.Used(limits.Waiting), i.Used(limits.Sessions), i.Used(limits.Paths)
}

// Remembered returns how many sessions and claims of the identity are kept in memory.
func (g *Gate) Remembered(name string) (sessions, claims int) {
	return g.ledger.Identity(name).Remembered()
}

// Total returns the usage of all identities together.
func (g *Gate) Total() (claims, sessions int) {
	return g.ledger.Used(limits.Claims), g.ledger.Used(limits.Sessions)
}

// NameInAndOut returns the identity's name for a session of the engine, and the engine's id to
// which that name maps back.
func NameInAndOut(identity, session string) (out, in string) {
	n := names{prefix: identity + separator}
	out = n.out(session)
	return out, n.in(out)
}

// Allows reports whether a rule that lets who lock paths allows name to lock at.
func Allows(who, paths []string, name string, at lockkeeper.Path) bool {
	p := compile(&Policy{Rules: []Rule{{Who: who, May: []Verb{Lock}, Paths: paths}}})
	r := p.rightsOf(name, time.Time{})
	return r != nil && r.allows(Lock, at)
}

// Elapse makes the credential of the pass expire, as a clock that jumps ahead does.
func (p *Pass) Elapse() {
	r := *p.admission.rights.Load()
	r.expires = time.Unix(1, 0)
	p.admission.rights.Store(&r)
}
